"""One price: hours saved against dollars, for every option of a job."""
