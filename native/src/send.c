/* Rows of Arrow arrays into the queue of a producer. */

#include "headers.h"
#include "native.h"

#include <stdlib.h>
#include <string.h>

enum { KEY, VALUE, TIMESTAMP, HEADERS, COLUMNS };

struct cs_outgoing {
    struct ArrowArray rows;
    const int32_t *partitions;
    int64_t *order; /* NULL: as they are */
    int64_t next;
};

typedef struct {
    const void *bytes; /* NULL: none */
    size_t size;
} cell;

static int is_valid(const struct ArrowArray *column, int64_t at) {
    const uint8_t *valid = column->buffers[0];
    return valid == NULL || (valid[at >> 3] >> (at & 7) & 1);
}

static cell text_of(const struct ArrowArray *rows, int column, int64_t row) {
    const struct ArrowArray *array = rows->children[column];
    int64_t at = rows->offset + array->offset + row;
    if (!is_valid(array, at))
        return (cell){NULL, 0};
    const int64_t *ends = array->buffers[1];
    const char *bytes = array->buffers[2];
    return (cell){bytes == NULL ? "" : bytes + ends[at], (size_t)(ends[at + 1] - ends[at])};
}

static int64_t timestamp_of(const struct ArrowArray *rows, int64_t row) {
    const struct ArrowArray *array = rows->children[TIMESTAMP];
    int64_t found = ((const int64_t *)array->buffers[1])[rows->offset + array->offset + row];
    return found == 0 ? 1 : found; /* librdkafka takes 0 for now */
}

/* Kafka's hash of a key: `crossstream.partitioning.murmur2`. */
static uint32_t murmur2(const uint8_t *key, size_t size) {
    const uint32_t m = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ (uint32_t)size;
    for (; size >= 4; key += 4, size -= 4) {
        uint32_t word = key[0] | (uint32_t)key[1] << 8 | (uint32_t)key[2] << 16 | (uint32_t)key[3] << 24;
        word *= m;
        word ^= word >> 24;
        hash = hash * m ^ word * m;
    }
    switch (size) {
    case 3:
        hash ^= (uint32_t)key[2] << 16; /* fall through */
    case 2:
        hash ^= (uint32_t)key[1] << 8; /* fall through */
    case 1:
        hash = (hash ^ key[0]) * m;
    }
    hash ^= hash >> 13;
    hash *= m;
    return hash ^ hash >> 15;
}

static int32_t partition_of(const cs_outgoing *outgoing, int64_t row) {
    return outgoing->partitions == NULL ? PARTITION_UA : outgoing->partitions[row];
}

/* The partition where the client will put a row, to sort by; without a key it may be any. */
static uint32_t home_of(const cs_outgoing *outgoing, int64_t row, uint32_t count) {
    int32_t given = partition_of(outgoing, row);
    if (given != PARTITION_UA)
        return (uint32_t)given < count ? (uint32_t)given : count; /* one that does not exist */
    cell key = text_of(&outgoing->rows, KEY, row);
    return key.bytes == NULL ? 0 : (murmur2(key.bytes, key.size) & 0x7fffffff) % count;
}

/* One partition after the other, the rows of each in their order; 0: out of memory. */
static int sort(cs_outgoing *outgoing, uint32_t count) {
    int64_t rows = outgoing->rows.length;
    uint32_t *homes = malloc((size_t)rows * sizeof *homes + 1);
    int64_t *starts = calloc((size_t)count + 2, sizeof *starts);
    outgoing->order = malloc((size_t)rows * sizeof *outgoing->order + 1);
    int is_done = homes != NULL && starts != NULL && outgoing->order != NULL;
    for (int64_t row = 0; is_done && row < rows; row++)
        starts[(homes[row] = home_of(outgoing, row, count)) + 1]++;
    for (uint32_t home = 0; is_done && home < count; home++)
        starts[home + 1] += starts[home];
    for (int64_t row = 0; is_done && row < rows; row++)
        outgoing->order[starts[homes[row]]++] = row;
    free(homes);
    free(starts);
    return is_done;
}

cs_outgoing *cs_outgoing_new(struct ArrowArray *rows, const int32_t *partitions, int32_t count) {
    cs_outgoing *outgoing = calloc(1, sizeof *outgoing);
    if (outgoing == NULL) {
        rows->release(rows);
        return NULL;
    }
    outgoing->rows = *rows;
    outgoing->partitions = partitions;
    rows->release = NULL; /* moved */
    if (count > 1 && !sort(outgoing, (uint32_t)count)) {
        cs_outgoing_free(outgoing);
        return NULL;
    }
    return outgoing;
}

const int64_t *cs_outgoing_order(const cs_outgoing *outgoing) { return outgoing->order; }

void cs_outgoing_free(cs_outgoing *outgoing) {
    outgoing->rows.release(&outgoing->rows);
    free(outgoing->order);
    free(outgoing);
}

static int produce(cs_outgoing *outgoing, cs_client *client, rd_kafka_topic_t *topic, int64_t row) {
    cell key = text_of(&outgoing->rows, KEY, row), value = text_of(&outgoing->rows, VALUE, row);
    cell packed = text_of(&outgoing->rows, HEADERS, row);
    rd_kafka_vu_t parts[7] = {
        {.vtype = VTYPE_RKT, .u.rkt = topic},
        {.vtype = VTYPE_PARTITION, .u.i32 = partition_of(outgoing, row)},
        {.vtype = VTYPE_VALUE, .u.mem = {value.bytes, value.size}},
        {.vtype = VTYPE_KEY, .u.mem = {key.bytes, key.size}},
        {.vtype = VTYPE_TIMESTAMP, .u.i64 = timestamp_of(&outgoing->rows, row)},
        {.vtype = VTYPE_MSGFLAGS, .u.i = MSG_F_COPY},
    };
    size_t count = 6;
    if (packed.bytes != NULL) {
        parts[count].vtype = VTYPE_HEADERS;
        if ((parts[count++].u.headers = cs_headers_unpack(packed.bytes, packed.size)) == NULL)
            return ERR_INVALID_ARG;
    }
    rd_kafka_error_t *error = rd.produceva(client->handle, parts, count);
    if (error == NULL)
        return 0;
    if (packed.bytes != NULL)
        rd.headers_destroy(parts[6].u.headers); /* they are the client's only where it takes the record */
    int code = rd.error_code(error);
    rd.error_destroy(error);
    return code;
}

int cs_outgoing_send(cs_outgoing *outgoing, cs_client *client, const char *topic, int64_t *row) {
    rd_kafka_topic_t *known = rd.topic_new(client->handle, topic, NULL);
    int code = known == NULL ? ERR_INVALID_ARG : 0;
    for (; code == 0 && outgoing->next < outgoing->rows.length; outgoing->next += code == 0) {
        *row = outgoing->order == NULL ? outgoing->next : outgoing->order[outgoing->next];
        code = produce(outgoing, client, known, *row);
    }
    if (known != NULL)
        rd.topic_destroy(known);
    return code;
}
