/* Clients: opened with settings as strings, and what their threads report. */

#include "native.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rd_kafka rd;

const char *cs_load(const char *library) {
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* never closed: clients have threads */
    if (loaded == NULL)
        return library;
#define FIND(result, function, parameters)                                                                     \
    if ((rd.function = (result(*) parameters)dlsym(loaded, "rd_kafka_" #function)) == NULL)                    \
        return "rd_kafka_" #function;
    RD_KAFKA(FIND)
#undef FIND
    return NULL;
}

int cs_interface(void) { return INTERFACE; }

static void notice(cs_client *client, int level, int code, const char *text) {
    pthread_mutex_lock(&client->lock);
    cs_notice *next = &client->notices[client->noticed++ % NOTICES];
    next->level = level;
    next->code = code;
    strncpy(next->text, text, sizeof next->text - 1);
    next->text[sizeof next->text - 1] = 0;
    if (client->noticed - client->read > NOTICES)
        client->read = client->noticed - NOTICES;
    pthread_mutex_unlock(&client->lock);
}

static void on_log(const rd_kafka_t *handle, int level, const char *kind, const char *text) {
    if (handle == NULL) /* still being opened */
        return;
    char line[sizeof((cs_notice *)NULL)->text];
    snprintf(line, sizeof line, "%s [%s] %s", kind, rd.name(handle), text);
    notice(rd.opaque(handle), level, 0, line);
}

static void on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque) {
    char text[512];
    if (code != ERR_FATAL)
        notice(opaque, -1, code, reason);
    else {
        code = rd.fatal_error(handle, text, sizeof text);
        notice(opaque, -2, code, text);
    }
}

static void on_delivery(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque) {
    (void)handle;
    cs_client *client = opaque;
    if (message->err == 0)
        return;
    pthread_mutex_lock(&client->lock);
    cs_failure *failure = &client->failure;
    if (failure->count++ == 0) {
        failure->code = message->err;
        failure->partition = message->partition;
        failure->topic = strdup(rd.topic_name(message->rkt));
        failure->key_size = -1;
        if (message->key != NULL && (failure->key = malloc(message->key_len + 1)) != NULL) {
            memcpy(failure->key, message->key, message->key_len);
            failure->key_size = (int64_t)message->key_len;
        }
    }
    pthread_mutex_unlock(&client->lock);
}

static rd_kafka_conf_t *configured(cs_client *client, int kind, const char *const *names, const char *const *values,
                                   size_t count, char *reason, size_t size) {
    rd_kafka_conf_t *conf = rd.conf_new();
    for (size_t i = 0; i < count; i++)
        if (rd.conf_set(conf, names[i], values[i], reason, size) != CONF_OK) {
            rd.conf_destroy(conf);
            return NULL;
        }
    rd.conf_set_opaque(conf, client);
    rd.conf_set_log_cb(conf, on_log);
    rd.conf_set_error_cb(conf, on_error);
    if (kind == PRODUCER)
        rd.conf_set_dr_msg_cb(conf, on_delivery);
    return conf;
}

cs_client *cs_open(int kind, const char *const *names, const char *const *values, size_t count, char *reason,
                   size_t size) {
    cs_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        strncpy(reason, "out of memory", size);
        return NULL;
    }
    pthread_mutex_init(&client->lock, NULL);
    rd_kafka_conf_t *conf = configured(client, kind, names, values, count, reason, size);
    if (conf != NULL && (client->handle = rd.new(kind, conf, reason, size)) == NULL)
        rd.conf_destroy(conf);
    if (client->handle == NULL) {
        pthread_mutex_destroy(&client->lock);
        free(client);
        return NULL;
    }
    if (kind == CONSUMER) {
        rd.poll_set_consumer(client->handle);
        client->queue = rd.queue_get_consumer(client->handle);
    }
    return client;
}

void cs_close(cs_client *client) {
    if (client->queue != NULL) {
        rd.consumer_close(client->handle);
        rd.queue_destroy(client->queue);
    }
    rd.destroy(client->handle); /* joins the client's threads: no callback comes after it */
    cs_forget_taken(client);
    free(client->failure.topic);
    free(client->failure.key);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

rd_kafka_t *cs_handle(cs_client *client) { return client->handle; }

int cs_next_notice(cs_client *client, cs_notice *notice) {
    pthread_mutex_lock(&client->lock);
    int found = client->read < client->noticed;
    if (found)
        *notice = client->notices[client->read++ % NOTICES];
    pthread_mutex_unlock(&client->lock);
    return found;
}

int cs_take_failure(cs_client *client, cs_failure *failure) {
    pthread_mutex_lock(&client->lock);
    *failure = client->failure;
    memset(&client->failure, 0, sizeof client->failure);
    pthread_mutex_unlock(&client->lock);
    return failure->count > 0;
}

void cs_free(void *memory) { free(memory); }
