"""Commands too long for `course.cli`, one module each; what they compute lives elsewhere."""
