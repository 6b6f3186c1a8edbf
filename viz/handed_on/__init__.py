"""What is handed on: one file that shows a result without relascope, and files for other tools."""
