"""Reports as HTML files: the frame, its style sheet, tables, and pictures in SVG. All are functions of plain values."""
