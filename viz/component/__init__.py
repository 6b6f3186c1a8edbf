"""The graph viewer as a Streamlit component."""
