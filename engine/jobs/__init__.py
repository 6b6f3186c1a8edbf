"""Work of many calls, on the asking side: the page's and the command line's."""
