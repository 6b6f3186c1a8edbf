"""What is seen: the neutral graph, its layout, its colours and the page's panels."""
