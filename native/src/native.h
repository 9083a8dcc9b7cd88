/* What Python calls (crossstream/kafka/native). Functions may be called without the GIL; one thread at a time uses a
 * client, but for `cs_next_notice`. */

#ifndef CROSSSTREAM_NATIVE_H
#define CROSSSTREAM_NATIVE_H

#include "rdkafka.h"

#include <pthread.h>

enum { INTERFACE = 1 };

/* What a client's threads report: a line of its log (`level` of syslog), or an error (`level` -1; -2: a fatal one). */
typedef struct {
    int32_t level;
    int32_t code;
    char text[1016];
} cs_notice;

enum { NOTICES = 64 };

/* The first record that was not stored since the last time this was asked, and how many were not. */
typedef struct {
    int64_t count;
    int32_t code;
    int32_t partition;
    char *topic;
    void *key;
    int64_t key_size; /* -1: no key */
} cs_failure;

/* Records of one partition in ascending offsets: columns of `RECORDS`. */
typedef struct {
    struct ArrowArray rows;
    char *topic;
    int64_t first, last;
    int32_t partition;
} cs_run;

/* What is no record: an error, or the end of a partition. */
typedef struct {
    char *topic; /* NULL: of the client */
    char *text;
    int64_t offset;
    int32_t partition;
    int32_t code;
} cs_event;

typedef struct {
    int64_t run_count, event_count;
    cs_run *runs;
    cs_event *events;
} cs_taken;

typedef struct {
    rd_kafka_t *handle;
    rd_kafka_queue_t *queue; /* of a consumer */
    pthread_mutex_t lock;    /* of what follows */
    int64_t noticed, read;   /* notices are in a ring: newer ones replace those that are not read */
    cs_notice notices[NOTICES];
    cs_failure failure;
    /* of the thread that takes */
    cs_taken taken;
    rd_kafka_message_t **messages;
    int32_t *run_of;
    int32_t room;
} cs_client;

typedef struct cs_outgoing cs_outgoing;

/* Finds librdkafka's functions; the name of one that is missing. */
const char *cs_load(const char *library);
int cs_interface(void);

/* Opens a client; NULL with a reason. A value may be NULL: the default. */
cs_client *cs_open(int kind, const char *const *names, const char *const *values, size_t count, char *reason,
                   size_t size);
/* Ends the client and its threads. Arrow arrays that were taken from it stay. */
void cs_close(cs_client *client);
rd_kafka_t *cs_handle(cs_client *client);
/* Whether there was one. */
int cs_next_notice(cs_client *client, cs_notice *notice);
/* The caller owns topic and key: `cs_free`. */
int cs_take_failure(cs_client *client, cs_failure *failure);
void cs_free(void *memory);

/* At most `most` messages, as they are in the queue; waits up to `timeout_ms` for the first. NULL: out of memory.
 * The answer lives until the next call; `rows` may be moved out of it. */
const cs_taken *cs_take(cs_client *client, int32_t most, int32_t timeout_ms);

void cs_forget_taken(cs_client *client);

/* Records to be produced: key, value, timestamp, headers. Moves `rows`. `partitions` (-1: by key) must outlive the
 * answer; NULL: all by key. With `count`, the number of partitions, one partition after the other, each in its order. */
cs_outgoing *cs_outgoing_new(struct ArrowArray *rows, const int32_t *partitions, int32_t count);
/* Hands records to the client until all are in its queue (0), or one is refused: the error. A later call continues
 * with that record; `row` is its place among the rows. */
int cs_outgoing_send(cs_outgoing *outgoing, cs_client *client, const char *topic, int64_t *row);
/* The rows in the order in which they are sent; NULL: as they are. */
const int64_t *cs_outgoing_order(const cs_outgoing *outgoing);
void cs_outgoing_free(cs_outgoing *outgoing);

#endif
