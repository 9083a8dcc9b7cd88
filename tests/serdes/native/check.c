/* Rows of JSON, whole and garbled, each in memory of its own size: the sanitizers see a byte too far. */

#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *ROWS[] = {
    "{\"name\":\"Ada\",\"count\":-7,\"amount\":12.50,\"good\":true}",
    " { \"good\" : false , \"amount\":0.30000000000000004,\"count\":0,\"name\":\"\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\" } ",
    "{\"name\":null,\"other\":[1,{\"a\":[\"b\"]},-2.5,null],\"count\":999999999999999999,\"amount\":1,\"good\":true}",
    "{}",
};
enum { KINDS = 4, ROUNDS = 400000 };

static uint32_t state = 1;

static uint32_t draw(uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static void read_rows(const char *text, size_t size) {
    static const char *names[KINDS] = {"name", "count", "amount", "good"};
    uint8_t *content = malloc(size ? size : 1), valid[KINDS][1], *texts = malloc(size ? size : 1);
    memcpy(content, text, size);
    int64_t ends[2] = {0, (int64_t)size}, wholes[1], *lengths = calloc(2, sizeof(int64_t));
    double doubles[1];
    uint8_t truths[1];
    void *values[KINDS] = {lengths, wholes, doubles, truths};
    cs_json_field fields[KINDS];
    for (int kind = 0; kind < KINDS; kind++)
        fields[kind] = (cs_json_field){.name = names[kind],
                                       .name_size = (int64_t)strlen(names[kind]),
                                       .kind = kind,
                                       .flags = (int32_t)draw(8),
                                       .values = values[kind],
                                       .valid = valid[kind],
                                       .text = texts};
    int64_t made = cs_json_columns(content, ends, NULL, 1, fields, KINDS, (int32_t)draw(2));
    if (made != 1 && made != -1)
        abort();
    free(content);
    free(texts);
    free(lengths);
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        const char *row = ROWS[draw(sizeof ROWS / sizeof *ROWS)];
        size_t size = strlen(row);
        char text[256];
        memcpy(text, row, size);
        for (uint32_t change = draw(4); change > 0; change--)
            text[draw((uint32_t)size)] = draw(3) ? "\"{}[]:,\\0.-etn"[draw(14)] : (char)draw(256);
        read_rows(text, draw(4) ? size : draw((uint32_t)size + 1));
    }
    puts("read");
    return 0;
}
