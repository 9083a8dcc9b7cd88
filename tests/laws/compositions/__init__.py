"""The law over compositions: random graphs of every kind of operator, each function in every form it may have.

graphs      a graph, its records and the way they are cut, as small data; which kinds of streams and tables steps make
functions   what functions do, each as a callable and as an expression
drawing     random cases
operators   random operators
building    a graph as a topology
meaning     what a graph means, record by record, in plain Python
several     where one record makes several records or changes
kafka       cases for Kafka's own driver, and how its results are compared with ours
running     a case through the driver, and how results are compared
"""
