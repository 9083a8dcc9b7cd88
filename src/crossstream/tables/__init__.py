"""What all operators on tables share: their rows, the other side of a join, results, global tables and views."""
