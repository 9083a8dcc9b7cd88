"""The marketplace of the foreign-key article: merchants who sell, and the products they sell."""
