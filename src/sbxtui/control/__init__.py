"""The home of boto3: AWS spellings and foreign errors stop here. Imports store, settings and core."""
