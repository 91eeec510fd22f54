"""As much of S3 as archives of images need: buckets and objects of this machine, path style, on the API's own port."""
