"""Programs that make and change data sets, and the file formats they share. No framework."""
