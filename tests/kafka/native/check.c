/* All that the native part does with memory, against a broker of librdkafka's own: compiled with the sanitizers by
 * `test_memory.py`, which passes where librdkafka is. */

#include "headers.h"
#include "native.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3000, PARTITIONS = 4 };

#define CHECK(what)                                                                                            \
    do {                                                                                                       \
        if (!(what)) {                                                                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                                 \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

typedef struct {
    int count, size;
    void *elements;
} places;

static void *kafka;

static void *found(const char *name) {
    void *function = dlsym(kafka, name);
    CHECK(function != NULL);
    return function;
}

#define CALL(result, name, parameters) ((result(*) parameters)found("rd_kafka_" #name))

/* -- rows to send */

static int released;

static void release(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        for (int64_t j = 0; j < array->children[i]->n_buffers; j++)
            free((void *)array->children[i]->buffers[j]);
        free(array->children[i]->buffers);
        free(array->children[i]);
    }
    free(array->children);
    array->release = NULL;
    released++;
}

static struct ArrowArray *text(int number, const char *cell, size_t size, int every) {
    struct ArrowArray *array = calloc(1, sizeof *array);
    int64_t *ends = calloc(ROWS + 1, sizeof *ends);
    uint8_t *valid = calloc(1, ROWS / 8 + 1);
    char *bytes = malloc(ROWS * (size + 8));
    for (int64_t row = 0; row < ROWS; row++) {
        ends[row + 1] = ends[row];
        if (row % every == 0)
            continue;
        valid[row / 8] |= (uint8_t)(1 << row % 8);
        memcpy(bytes + ends[row], cell, size);
        ends[row + 1] += (int64_t)size;
        if (number)
            ends[row + 1] += sprintf(bytes + ends[row + 1], "%05d", (int)row) ;
    }
    *array = (struct ArrowArray){.length = ROWS, .n_buffers = 3, .buffers = calloc(3, sizeof(void *))};
    array->buffers[0] = valid;
    array->buffers[1] = ends;
    array->buffers[2] = bytes;
    return array;
}

static struct ArrowArray rows(const char *headers, size_t headers_size) {
    struct ArrowArray all = {.length = ROWS, .n_children = 4, .release = release};
    all.children = calloc(4, sizeof *all.children);
    all.children[0] = text(1, "key-", 4, 7);
    all.children[1] = text(1, "value-of-some-bytes-", 20, 5);
    int64_t *stamps = calloc(ROWS, sizeof *stamps);
    for (int64_t row = 0; row < ROWS; row++)
        stamps[row] = 1000 + row;
    all.children[2] = calloc(1, sizeof **all.children);
    *all.children[2] = (struct ArrowArray){.length = ROWS, .n_buffers = 2, .buffers = calloc(2, sizeof(void *))};
    all.children[2]->buffers[1] = stamps;
    all.children[3] = text(0, headers, headers_size, 3);
    return all;
}

static int send(cs_client *producer, const int32_t *partitions, int count, const char *headers, size_t size) {
    struct ArrowArray given = rows(headers, size);
    int64_t row = -1;
    cs_outgoing *outgoing = cs_outgoing_new(&given, partitions, count);
    CHECK(outgoing != NULL && given.release == NULL);
    int code = cs_outgoing_send(outgoing, producer, "topic", &row);
    cs_outgoing_free(outgoing);
    return code;
}

/* -- clients */

static cs_client *opened(int kind, const char *servers) {
    const char *names[] = {servers == NULL ? "test.mock.num.brokers" : "bootstrap.servers", "group.id",
                           "enable.partition.eof"};
    const char *values[] = {servers == NULL ? "1" : servers, "group", "true"};
    char reason[512] = "";
    cs_client *client = cs_open(kind, names, values, kind == CONSUMER ? 3 : 1, reason, sizeof reason);
    CHECK(client != NULL);
    return client;
}

static void refused_settings(void) {
    const char *names[] = {"no.such.setting"}, *values[] = {"x"};
    char reason[512] = "";
    CHECK(cs_open(CONSUMER, names, values, 1, reason, sizeof reason) == NULL);
    CHECK(strstr(reason, "no.such.setting") != NULL);
}

static void assign(cs_client *consumer) {
    void *list = CALL(void *, topic_partition_list_new, (int))(PARTITIONS);
    for (int i = 0; i < PARTITIONS; i++)
        CALL(void *, topic_partition_list_add, (void *, const char *, int32_t))(list, "topic", i);
    for (int i = 0; i < PARTITIONS; i++)
        CALL(int, topic_partition_list_set_offset, (void *, const char *, int32_t, int64_t))(list, "topic", i, 0);
    CHECK(CALL(void *, incremental_assign, (void *, void *))(cs_handle(consumer), list) == NULL);
    CALL(void, topic_partition_list_destroy, (void *))(list);
}

/* -- what was taken */

static size_t cell_size(const struct ArrowArray *array, int64_t row) {
    const int64_t *ends = array->buffers[1];
    return (size_t)(ends[row + 1] - ends[row]);
}

static const char *cell(const struct ArrowArray *array, int64_t row) {
    return (const char *)array->buffers[2] + ((const int64_t *)array->buffers[1])[row];
}

static int is_null(const struct ArrowArray *array, int64_t row) {
    const uint8_t *valid = array->buffers[0];
    return valid != NULL && !(valid[row / 8] >> row % 8 & 1);
}

/* Each record says by its timestamp which row it was. */
static void compare(const struct ArrowArray *taken, const char *headers, size_t headers_size) {
    char text[64];
    for (int64_t row = 0; row < taken->length; row++) {
        int64_t sent = ((const int64_t *)taken->children[2]->buffers[1])[row] - 1000;
        CHECK(is_null(taken->children[0], row) == (sent % 7 == 0));
        CHECK(is_null(taken->children[1], row) == (sent % 5 == 0));
        CHECK(is_null(taken->children[4], row) == (sent % 3 == 0));
        if (sent % 7 != 0) {
            snprintf(text, sizeof text, "key-%05d", (int)sent);
            CHECK(cell_size(taken->children[0], row) == strlen(text));
            CHECK(memcmp(cell(taken->children[0], row), text, strlen(text)) == 0);
        }
        if (sent % 5 != 0)
            CHECK(cell_size(taken->children[1], row) == 25);
        if (sent % 3 != 0) {
            CHECK(cell_size(taken->children[4], row) == headers_size);
            CHECK(memcmp(cell(taken->children[4], row), headers, headers_size) == 0);
        }
    }
}

/* Moves every second run out, and of it a column that outlives the others. */
static int64_t take_all(cs_client *consumer, const char *headers, size_t size) {
    int64_t count = 0;
    int ended = 0;
    for (int turn = 0; (count < 2 * ROWS || ended == 0) && turn < 300; turn++) {
        const cs_taken *taken = cs_take(consumer, 257, 200);
        CHECK(taken != NULL);
        for (int64_t i = 0; i < taken->run_count; i++) {
            cs_run *run = &taken->runs[i];
            CHECK(strcmp(run->topic, "topic") == 0 && run->first <= run->last);
            compare(&run->rows, headers, size);
            count += run->rows.length;
            if (turn % 2 == 0)
                continue; /* left where it is */
            struct ArrowArray moved = run->rows, column = *moved.children[1];
            run->rows.release = NULL;
            moved.children[1]->release = NULL;
            moved.release(&moved);
            CHECK(column.length == 0 || cell_size(&column, column.length - 1) < 100);
            column.release(&column);
        }
        for (int64_t i = 0; i < taken->event_count; i++)
            ended += taken->events[i].code == -191;
    }
    return count;
}

static void garbled_headers(const char *headers, size_t size) {
    uint8_t cell[64];
    for (size_t cut = 0; cut < size; cut++)
        CHECK(cs_headers_unpack((const uint8_t *)headers, cut) == NULL);
    for (int round = 0; round < 200000; round++) {
        size_t length = (size_t)rand() % sizeof cell;
        for (size_t i = 0; i < length; i++)
            cell[i] = (uint8_t)(rand() % 3 ? 0x90 + rand() % 0x50 : rand());
        uint8_t *exact = malloc(length + 1); /* so that a read behind its end is seen */
        memcpy(exact + 1, cell, length);
        rd_kafka_headers_t *unpacked = cs_headers_unpack(exact + 1, length);
        if (unpacked != NULL)
            rd.headers_destroy(unpacked);
        free(exact);
    }
}

int main(int count, char **words) {
    CHECK(count == 2 && (kafka = dlopen(words[1], RTLD_NOW)) != NULL);
    CHECK(cs_load("/no/such/library") != NULL);
    CHECK(cs_load(words[1]) == NULL && cs_interface() == INTERFACE);
    refused_settings();

    const char headers[] = "\x93\x92\xa5trace\xc4\x02\x00\xff\x92\xa5""empty\xc4\x00\x92\xa7nothing\xc0";
    size_t size = sizeof headers - 1;
    garbled_headers(headers, size);

    cs_client *producer = opened(PRODUCER, NULL);
    void *cluster = CALL(void *, handle_mock_cluster, (void *))(cs_handle(producer));
    CALL(int, mock_topic_create, (void *, const char *, int, int))(cluster, "topic", PARTITIONS, 1);
    const char *servers = CALL(const char *, mock_cluster_bootstraps, (void *))(cluster);
    cs_client *consumer = opened(CONSUMER, servers);
    assign(consumer);

    int32_t partitions[ROWS];
    for (int i = 0; i < ROWS; i++)
        partitions[i] = i % 2 ? i % PARTITIONS : PARTITION_UA;
    CHECK(send(producer, NULL, 0, headers, size) == 0);
    CHECK(send(producer, partitions, PARTITIONS, headers, size) == 0);
    CHECK(CALL(int, flush, (void *, int))(cs_handle(producer), 20000) == 0);
    CHECK(take_all(consumer, headers, size) == 2 * ROWS);

    cs_failure failure;
    CHECK(!cs_take_failure(producer, &failure));
    CHECK(send(producer, NULL, PARTITIONS, "\x91\x92", 2) == ERR_INVALID_ARG); /* no headers */
    CALL(int, flush, (void *, int))(cs_handle(producer), 20000);
    for (int i = 0; i < ROWS; i++)
        partitions[i] = 1000;
    int code = send(producer, partitions, 0, headers, size); /* at once, or by a report */
    CALL(int, purge, (void *, int))(cs_handle(producer), 3);
    CALL(int, flush, (void *, int))(cs_handle(producer), 5000);
    CHECK(cs_take_failure(producer, &failure) || code != 0);
    cs_free(failure.topic);
    cs_free(failure.key);
    send(producer, partitions, 0, headers, size); /* another report, which nothing asks for */
    CHECK(released == 5);

    cs_notice notice;
    while (cs_next_notice(producer, &notice))
        CHECK(strlen(notice.text) < sizeof notice.text);
    cs_take(consumer, 100, 0);
    cs_close(consumer);
    cs_close(producer);
    return 0;
}
