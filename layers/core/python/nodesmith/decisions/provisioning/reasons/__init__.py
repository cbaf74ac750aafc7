"""Why a demand found nothing to buy."""
