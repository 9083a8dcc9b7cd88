/* The part of librdkafka's public C interface that is used here (rdkafka.h, since 2.0), and of Arrow's.
 *
 * Nothing is linked: `cs_load` looks the functions up in the librdkafka that the Python client has loaded. */

#ifndef CROSSSTREAM_RDKAFKA_H
#define CROSSSTREAM_RDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;

typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { VTYPE_RKT = 2, VTYPE_PARTITION, VTYPE_VALUE, VTYPE_KEY, VTYPE_MSGFLAGS = 7, VTYPE_TIMESTAMP, VTYPE_HEADERS = 10 };

typedef struct {
    int vtype;
    union {
        rd_kafka_topic_t *rkt;
        int i;
        int32_t i32;
        int64_t i64;
        struct {
            const void *ptr;
            size_t size;
        } mem;
        rd_kafka_headers_t *headers;
        char _pad[64];
    } u;
} rd_kafka_vu_t;

enum { PRODUCER = 0, CONSUMER = 1 };
enum { CONF_OK = 0, MSG_F_COPY = 2, PARTITION_UA = -1 };
enum { ERR_INVALID_ARG = -186, ERR_NO_MEMORY = -192, ERR_FATAL = -150 };

#define RD_KAFKA(FUNCTION)                                                                                      \
    FUNCTION(rd_kafka_conf_t *, conf_new, (void))                                                               \
    FUNCTION(void, conf_destroy, (rd_kafka_conf_t *))                                                           \
    FUNCTION(int, conf_set, (rd_kafka_conf_t *, const char *, const char *, char *, size_t))                    \
    FUNCTION(void, conf_set_opaque, (rd_kafka_conf_t *, void *))                                                \
    FUNCTION(void, conf_set_log_cb,                                                                             \
             (rd_kafka_conf_t *, void (*)(const rd_kafka_t *, int, const char *, const char *)))                \
    FUNCTION(void, conf_set_error_cb, (rd_kafka_conf_t *, void (*)(rd_kafka_t *, int, const char *, void *)))   \
    FUNCTION(void, conf_set_dr_msg_cb,                                                                          \
             (rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *)))                   \
    FUNCTION(rd_kafka_t *, new, (int, rd_kafka_conf_t *, char *, size_t))                                       \
    FUNCTION(void, destroy, (rd_kafka_t *))                                                                     \
    FUNCTION(void *, opaque, (const rd_kafka_t *))                                                              \
    FUNCTION(const char *, name, (const rd_kafka_t *))                                                          \
    FUNCTION(int, fatal_error, (rd_kafka_t *, char *, size_t))                                                  \
    FUNCTION(int, poll_set_consumer, (rd_kafka_t *))                                                            \
    FUNCTION(int, consumer_close, (rd_kafka_t *))                                                               \
    FUNCTION(rd_kafka_queue_t *, queue_get_consumer, (rd_kafka_t *))                                            \
    FUNCTION(void, queue_destroy, (rd_kafka_queue_t *))                                                         \
    FUNCTION(ssize_t, consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))            \
    FUNCTION(void, message_destroy, (rd_kafka_message_t *))                                                     \
    FUNCTION(int64_t, message_timestamp, (const rd_kafka_message_t *, int *))                                   \
    FUNCTION(int, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                         \
    FUNCTION(const char *, message_errstr, (const rd_kafka_message_t *))                                        \
    FUNCTION(size_t, header_cnt, (const rd_kafka_headers_t *))                                                  \
    FUNCTION(int, header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *)) \
    FUNCTION(rd_kafka_headers_t *, headers_new, (size_t))                                                       \
    FUNCTION(int, header_add, (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))             \
    FUNCTION(void, headers_destroy, (rd_kafka_headers_t *))                                                     \
    FUNCTION(rd_kafka_topic_t *, topic_new, (rd_kafka_t *, const char *, void *))                               \
    FUNCTION(const char *, topic_name, (const rd_kafka_topic_t *))                                              \
    FUNCTION(void, topic_destroy, (rd_kafka_topic_t *))                                                         \
    FUNCTION(rd_kafka_error_t *, produceva, (rd_kafka_t *, const rd_kafka_vu_t *, size_t))                      \
    FUNCTION(int, error_code, (const rd_kafka_error_t *))                                                       \
    FUNCTION(void, error_destroy, (rd_kafka_error_t *))

#define FIELD(result, name, parameters) result(*name) parameters;
extern struct rd_kafka {
    RD_KAFKA(FIELD)
} rd;
#undef FIELD

/* https://arrow.apache.org/docs/format/CDataInterface.html */
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif
