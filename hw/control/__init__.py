"""From commands to requests, pieces and jobs."""
