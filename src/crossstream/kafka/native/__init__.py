"""A Kafka client whose records never are Python objects: C between librdkafka and Arrow (decision 0052).

It is there where the package `crossstream-native` is installed, and does all that `crossstream.kafka.messages` does. It
has no librdkafka of its own but takes that of `confluent_kafka`, with its TLS, its logins and its codecs.
"""
