"""What runs inside the containers: training programs and what they share."""
