/* Headers of a record and their cell in the column: MessagePack of [[name, bytes or nil], …], as
 * `crossstream.records.encode_headers` writes it. */

#ifndef CROSSSTREAM_HEADERS_H
#define CROSSSTREAM_HEADERS_H

#include "rdkafka.h"

/* The bytes of the cell; with `cell`, they are written there. */
size_t cs_headers_pack(const rd_kafka_headers_t *headers, uint8_t *cell);
/* NULL: this is no such cell. The caller owns the answer. */
rd_kafka_headers_t *cs_headers_unpack(const uint8_t *cell, size_t size);

#endif
