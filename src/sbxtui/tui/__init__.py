"""The dashboard: the home of textual. Knows neither boto3 nor HTTP nor SQL."""
