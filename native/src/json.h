/* Columns out of rows of JSON (crossstream/serdes/json/native.py). Needs nothing of Kafka. */

#ifndef CROSSSTREAM_JSON_H
#define CROSSSTREAM_JSON_H

#include <stdint.h>

enum { CS_JSON_TEXT, CS_JSON_WHOLE, CS_JSON_DOUBLE, CS_JSON_TRUTH };
enum { CS_JSON_NULLABLE = 1, CS_JSON_MAY_MISS = 2, CS_JSON_WANTED = 4 };
enum { CS_JSON_MOST = 64 };

/* A field: of those that are not wanted only the form is checked. `values`: of text where each begins and ends in `text`,
 * one more than rows; else 64 bits each, of truth 8. `valid`: a byte each. What is missing and may be is null. */
typedef struct {
    const char *name;
    int64_t name_size;
    int32_t kind, flags;
    void *values;
    uint8_t *valid;
    uint8_t *text;
    int64_t nulls;
} cs_json_field;

/* Makes rows of the objects that are `there` (a byte each, NULL: all), one after the other; returns how many, or -1 if it
 * gives up. `is_open`: there may be fields that are not known. */
int64_t cs_json_columns(const uint8_t *content, const int64_t *ends, const uint8_t *there, int64_t rows,
                        cs_json_field *fields, int64_t count, int32_t is_open);

#endif
