"""Bodies of answers of the API server, whatever others put into its objects. May import no other folder."""
