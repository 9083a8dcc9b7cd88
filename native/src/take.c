/* Messages of a consumer as Arrow arrays: one block of memory for each partition, with all columns in it. */

#include "headers.h"
#include "native.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { KEY, VALUE, TIMESTAMP, OFFSET, HEADERS, COLUMNS };
enum { TEXTS = 3 }; /* key, value, headers */

/* A binary column while it is filled: at first it is only measured. */
typedef struct {
    int64_t nulls, size;
    uint8_t *valid; /* NULL: no cell is null */
    int64_t *ends;  /* and the begin of the first */
    uint8_t *bytes;
} text;

/* What all arrays of a run are in. It is freed when the last of them is released. */
typedef struct {
    atomic_int arrays;
    struct ArrowArray columns[COLUMNS];
    struct ArrowArray *places[COLUMNS];
    const void *buffers[COLUMNS][3];
    const void *no_buffer;
} block;

/* A run while it is filled. */
typedef struct {
    const rd_kafka_topic_t *topic;
    int32_t partition;
    int64_t rows, filled;
    text texts[TEXTS];
    int64_t *timestamps, *offsets;
    block *all;
} filling;

static void release_one(struct ArrowArray *array) {
    block *all = array->private_data;
    array->release = NULL;
    if (atomic_fetch_sub(&all->arrays, 1) == 1)
        free(all);
}

static void release_all(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i]->release != NULL)
            array->children[i]->release(array->children[i]);
    release_one(array);
}

static size_t padded(size_t size) { return (size + 63) & ~(size_t)63; }

/* The next part of a block, or of the measure of one. */
static void *part(uint8_t *base, size_t *used, size_t size) {
    void *found = base == NULL ? NULL : base + *used;
    *used += padded(size);
    return found;
}

/* Where the columns of a run are, from `base` on; the bytes that they need. */
static size_t lay_out(filling *run, uint8_t *base) {
    size_t used = 0, rows = (size_t)run->rows;
    part(base, &used, sizeof(block));
    run->timestamps = part(base, &used, rows * sizeof(int64_t));
    run->offsets = part(base, &used, rows * sizeof(int64_t));
    for (text *each = run->texts; each < run->texts + TEXTS; each++) {
        each->ends = part(base, &used, (rows + 1) * sizeof(int64_t));
        each->valid = each->nulls > 0 ? part(base, &used, (rows + 7) / 8) : NULL;
        each->bytes = part(base, &used, (size_t)each->size);
    }
    return used;
}

static int allocate(filling *run) {
    run->all = aligned_alloc(64, lay_out(run, NULL));
    if (run->all == NULL)
        return 0;
    lay_out(run, (uint8_t *)run->all);
    for (text *each = run->texts; each < run->texts + TEXTS; each++) {
        if (each->valid != NULL)
            memset(each->valid, 0, (size_t)(run->rows + 7) / 8);
        each->ends[0] = 0;
        each->size = 0;
    }
    return 1;
}

static void measure(text *column, const void *bytes, size_t size) {
    column->nulls += bytes == NULL;
    column->size += (int64_t)size;
}

/* The next cell, of which the bytes are in place. */
static void end_cell(text *column, int64_t row, size_t size) {
    if (column->valid != NULL)
        column->valid[row >> 3] |= (uint8_t)(1 << (row & 7));
    column->size += (int64_t)size;
    column->ends[row + 1] = column->size;
}

static void fill(text *column, int64_t row, const void *bytes, size_t size) {
    if (bytes == NULL) {
        column->ends[row + 1] = column->size;
        return;
    }
    memcpy(column->bytes + column->size, bytes, size);
    end_cell(column, row, size);
}

static rd_kafka_headers_t *headers_of(const rd_kafka_message_t *message) {
    rd_kafka_headers_t *headers;
    return rd.message_headers(message, &headers) == 0 && rd.header_cnt(headers) > 0 ? headers : NULL;
}

static void measure_message(filling *run, const rd_kafka_message_t *message) {
    rd_kafka_headers_t *headers = headers_of(message);
    measure(&run->texts[0], message->key, message->key_len);
    measure(&run->texts[1], message->payload, message->len);
    measure(&run->texts[2], headers, headers == NULL ? 0 : cs_headers_pack(headers, NULL));
    run->rows++;
}

static void fill_message(filling *run, const rd_kafka_message_t *message) {
    int64_t row = run->filled++;
    text *headers = &run->texts[2];
    int kind;
    run->timestamps[row] = rd.message_timestamp(message, &kind);
    run->offsets[row] = message->offset;
    fill(&run->texts[0], row, message->key, message->key_len);
    fill(&run->texts[1], row, message->payload, message->len);
    rd_kafka_headers_t *found = headers->nulls < run->rows ? headers_of(message) : NULL;
    if (found == NULL)
        headers->ends[row + 1] = headers->size;
    else
        end_cell(headers, row, cs_headers_pack(found, headers->bytes + headers->size));
}

static void make_array(block *all, int column, int64_t rows, int64_t nulls, int buffers) {
    all->columns[column] = (struct ArrowArray){.length = rows,
                                               .null_count = nulls,
                                               .n_buffers = buffers,
                                               .buffers = all->buffers[column],
                                               .release = release_one,
                                               .private_data = all};
    all->places[column] = &all->columns[column];
}

static void make_numbers(block *all, int column, int64_t rows, const int64_t *numbers) {
    make_array(all, column, rows, 0, 2);
    all->buffers[column][0] = NULL;
    all->buffers[column][1] = numbers;
}

static void make_text(block *all, int column, int64_t rows, const text *found) {
    make_array(all, column, rows, found->nulls, 3);
    all->buffers[column][0] = found->valid;
    all->buffers[column][1] = found->ends;
    all->buffers[column][2] = found->bytes;
}

static void finish(cs_run *made, filling *run) {
    block *all = run->all;
    atomic_init(&all->arrays, COLUMNS + 1);
    all->no_buffer = NULL;
    make_text(all, KEY, run->rows, &run->texts[0]);
    make_text(all, VALUE, run->rows, &run->texts[1]);
    make_numbers(all, TIMESTAMP, run->rows, run->timestamps);
    make_numbers(all, OFFSET, run->rows, run->offsets);
    make_text(all, HEADERS, run->rows, &run->texts[2]);
    made->rows = (struct ArrowArray){.length = run->rows,
                                     .n_buffers = 1,
                                     .n_children = COLUMNS,
                                     .buffers = &all->no_buffer,
                                     .children = all->places,
                                     .release = release_all,
                                     .private_data = all};
    made->topic = strdup(rd.topic_name(run->topic));
    made->partition = run->partition;
    made->first = run->offsets[0];
    made->last = run->offsets[run->rows - 1];
}

/* The run of a message's partition, mostly that of the message before it; -1: out of memory. */
static int32_t run_of(filling **runs, int64_t *count, int32_t last, const rd_kafka_message_t *message) {
    for (int64_t i = -1; i < *count; i++) {
        int32_t tried = i < 0 ? last : (int32_t)i;
        if (tried >= 0 && (*runs)[tried].partition == message->partition && (*runs)[tried].topic == message->rkt)
            return tried;
    }
    if ((*count & (*count - 1)) == 0) { /* full: there is room for powers of two */
        filling *more = realloc(*runs, (size_t)(*count == 0 ? 1 : 2 * *count) * sizeof(filling));
        if (more == NULL)
            return -1;
        *runs = more;
    }
    (*runs)[*count] = (filling){.topic = message->rkt, .partition = message->partition};
    return (int32_t)(*count)++;
}

void cs_forget_taken(cs_client *client) {
    cs_taken *taken = &client->taken;
    for (int64_t i = 0; i < taken->run_count; i++) {
        if (taken->runs[i].rows.release != NULL)
            taken->runs[i].rows.release(&taken->runs[i].rows);
        free(taken->runs[i].topic);
    }
    for (int64_t i = 0; i < taken->event_count; i++) {
        free(taken->events[i].topic);
        free(taken->events[i].text);
    }
    free(taken->runs);
    free(taken->events);
    free(client->messages);
    free(client->run_of);
    memset(taken, 0, sizeof *taken);
    client->messages = NULL;
    client->run_of = NULL;
}

static void note_event(cs_taken *taken, const rd_kafka_message_t *message) {
    cs_event *event = &taken->events[taken->event_count++];
    event->topic = message->rkt == NULL ? NULL : strdup(rd.topic_name(message->rkt));
    event->text = strdup(rd.message_errstr(message));
    event->offset = message->offset;
    event->partition = message->partition;
    event->code = message->err;
}

/* Sorts the messages into runs and events, then copies the runs into blocks; 0: out of memory. */
static int gather(cs_client *client, int32_t count, filling **runs, int64_t *run_count) {
    cs_taken *taken = &client->taken;
    int64_t events = 0;
    int32_t last = -1;
    for (int32_t i = 0; i < count; i++) {
        const rd_kafka_message_t *message = client->messages[i];
        client->run_of[i] = -1;
        events += message->err != 0;
        if (message->err != 0)
            continue;
        if ((last = run_of(runs, run_count, last, message)) < 0)
            return 0;
        client->run_of[i] = last;
        measure_message(&(*runs)[last], message);
    }
    taken->runs = calloc((size_t)*run_count + 1, sizeof *taken->runs);
    taken->events = calloc((size_t)events + 1, sizeof *taken->events);
    if (taken->runs == NULL || taken->events == NULL)
        return 0;
    for (int64_t i = 0; i < *run_count; i++)
        if (!allocate(&(*runs)[i]))
            return 0;
    for (int32_t i = 0; i < count; i++) {
        if (client->run_of[i] < 0)
            note_event(taken, client->messages[i]);
        else
            fill_message(&(*runs)[client->run_of[i]], client->messages[i]);
    }
    for (; taken->run_count < *run_count; taken->run_count++)
        finish(&taken->runs[taken->run_count], &(*runs)[taken->run_count]);
    return 1;
}

/* Takes what is in the queue; waits for a first message where there is none. */
static int32_t receive(cs_client *client, int32_t most, int32_t timeout_ms) {
    ssize_t count = rd.consume_batch_queue(client->queue, 0, client->messages, (size_t)most);
    if (count == 0 && timeout_ms > 0) {
        count = rd.consume_batch_queue(client->queue, timeout_ms, client->messages, 1);
        if (count == 1 && most > 1) {
            ssize_t more = rd.consume_batch_queue(client->queue, 0, client->messages + 1, (size_t)most - 1);
            count += more > 0 ? more : 0;
        }
    }
    return count > 0 ? (int32_t)count : 0;
}

const cs_taken *cs_take(cs_client *client, int32_t most, int32_t timeout_ms) {
    cs_forget_taken(client);
    client->messages = malloc((size_t)most * sizeof *client->messages);
    client->run_of = malloc((size_t)most * sizeof *client->run_of);
    if (client->messages == NULL || client->run_of == NULL)
        return NULL;
    int32_t count = receive(client, most, timeout_ms);
    filling *runs = NULL;
    int64_t run_count = 0;
    int done = gather(client, count, &runs, &run_count);
    if (!done) /* those that were finished belong to what was taken */
        for (int64_t i = client->taken.run_count; i < run_count; i++)
            free(runs[i].all);
    free(runs);
    for (int32_t i = 0; i < count; i++)
        rd.message_destroy(client->messages[i]);
    return done ? &client->taken : NULL;
}
