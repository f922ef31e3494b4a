"""What is asked at a submission: the four questions and what answers them."""
