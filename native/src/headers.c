#include "headers.h"

#include <string.h>

enum { NIL = 0xc0, BIN8 = 0xc4, STR8 = 0xd9, ARRAY16 = 0xdc, PAIR = 0x92, FIXSTR = 0xa0, FIXARRAY = 0x90 };

/* Writing: each part adds its size, and writes where there is a cell. */

static size_t put(uint8_t *cell, size_t at, const void *bytes, size_t size) {
    if (cell != NULL && size > 0)
        memcpy(cell + at, bytes, size);
    return at + size;
}

/* A number in as many big-endian bytes, behind the type. */
static size_t put_number(uint8_t *cell, size_t at, int type, int width, size_t number) {
    uint8_t bytes[5] = {(uint8_t)type};
    for (int i = 0; i < width; i++)
        bytes[1 + i] = (uint8_t)(number >> 8 * (width - 1 - i));
    return put(cell, at, bytes, (size_t)width + 1);
}

/* `type8`: the type with a length of one byte; those of two and four follow it. */
static size_t put_sized(uint8_t *cell, size_t at, int type8, const void *bytes, size_t size) {
    int power = size < 0x100 ? 0 : size < 0x10000 ? 1 : 2;
    if (type8 == STR8 && size < 32)
        at = put_number(cell, at, FIXSTR | (int)size, 0, 0);
    else
        at = put_number(cell, at, type8 + power, 1 << power, size);
    return put(cell, at, bytes, size);
}

size_t cs_headers_pack(const rd_kafka_headers_t *headers, uint8_t *cell) {
    size_t count = rd.header_cnt(headers), at = 0;
    if (count < 16)
        at = put_number(cell, at, FIXARRAY | (int)count, 0, 0);
    else
        at = put_number(cell, at, count < 0x10000 ? ARRAY16 : ARRAY16 + 1, count < 0x10000 ? 2 : 4, count);
    const char *name;
    const void *value;
    size_t size;
    for (size_t i = 0; i < count && rd.header_get_all(headers, i, &name, &value, &size) == 0; i++) {
        at = put_number(cell, at, PAIR, 0, 0);
        at = put_sized(cell, at, STR8, name, strlen(name));
        at = value == NULL ? put_number(cell, at, NIL, 0, 0) : put_sized(cell, at, BIN8, value, size);
    }
    return at;
}

/* Reading: a part that does not fit ends it. */

typedef struct {
    const uint8_t *at, *end;
} reading;

static int take_number(reading *from, int width, size_t *number) {
    if (from->end - from->at < width)
        return 0;
    for (*number = 0; width > 0; width--)
        *number = *number << 8 | *from->at++;
    return 1;
}

static int take_bytes(reading *from, size_t size, const void **bytes) {
    if ((size_t)(from->end - from->at) < size)
        return 0;
    *bytes = from->at;
    from->at += size;
    return 1;
}

static int take_sized(reading *from, size_t type, size_t type8, const void **bytes, size_t *size) {
    return type >= type8 && type < type8 + 3 && take_number(from, 1 << (type - type8), size) &&
           take_bytes(from, *size, bytes);
}

static int take_pair(reading *from, rd_kafka_headers_t *headers) {
    const void *name, *value = NULL;
    size_t type, name_size, size = 0;
    if (!take_number(from, 1, &type) || type != PAIR || !take_number(from, 1, &type))
        return 0;
    name_size = type & 0x1f;
    if ((type & 0xe0) == FIXSTR ? !take_bytes(from, name_size, &name)
                                : !take_sized(from, type, STR8, &name, &name_size))
        return 0;
    if (!take_number(from, 1, &type) || (type != NIL && !take_sized(from, type, BIN8, &value, &size)))
        return 0;
    return rd.header_add(headers, name, (ssize_t)name_size, value, (ssize_t)size) == 0;
}

rd_kafka_headers_t *cs_headers_unpack(const uint8_t *cell, size_t size) {
    reading from = {cell, cell + size};
    size_t type, count;
    if (!take_number(&from, 1, &type))
        return NULL;
    if ((type & 0xf0) == FIXARRAY)
        count = type & 0x0f;
    else if ((type != ARRAY16 && type != ARRAY16 + 1) || !take_number(&from, type == ARRAY16 ? 2 : 4, &count))
        return NULL;
    rd_kafka_headers_t *headers = rd.headers_new(count < 64 ? count : 64);
    while (count > 0 && take_pair(&from, headers))
        count--;
    if (count == 0 && from.at == from.end)
        return headers;
    rd.headers_destroy(headers);
    return NULL;
}
