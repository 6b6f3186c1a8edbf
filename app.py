"""The page: `streamlit run app.py`."""

from relascope.viz.page import main

main()
