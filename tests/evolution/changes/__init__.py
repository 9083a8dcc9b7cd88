"""Random applications, the changes of them, and what must be there afterwards.

applications  an application as small data, and which rows each operator makes
functions     what its functions do, each as an expression and as a callable
building      an application as a topology, by nothing but the public API
drawing       random applications and histories
kinds         the twelve kinds of change, applied to the data
worlds        an application that lives in a folder, and the fresh run that says what is right
"""
