"""What passes of several rooms share."""
