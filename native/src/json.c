/* Rows of JSON as columns: objects whose fields are text, numbers and truth values. Anything that is out of the ordinary
 * (an escape, a field that comes twice, a number that does not fit) makes it give up: then others read these rows, and
 * say what is wrong with them. What it reads it reads as they do. */

#include "json.h"

#include <locale.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

enum { DEEPEST = 16, DIGITS = 18, EXACT_DIGITS = 15, EXACT_POWERS = 22, LONGEST_NUMBER = 64 };

typedef struct {
    const uint8_t *at, *end;
} cursor;

typedef struct {
    const uint8_t *text;
    int64_t size, mantissa, fraction;
    int digits;
    bool is_whole, is_negative;
} number;

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static void skip_space(cursor *in) {
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' || *in->at == '\t' || *in->at == '\r'))
        in->at++;
}

/* The next byte that is no space, if it is this one, is passed. */
static bool pass(cursor *in, uint8_t byte) {
    skip_space(in);
    if (in->at == in->end || *in->at != byte)
        return false;
    in->at++;
    return true;
}

static bool pass_word(cursor *in, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(in->end - in->at) < size || memcmp(in->at, word, size) != 0)
        return false;
    in->at += size;
    return true;
}

/* The bytes of a character of several, from its first; 0 where it is none in UTF-8. */
static int wide(const uint8_t *at, const uint8_t *end) {
    int size = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    if (*at < 0xc2 || *at > 0xf4 || end - at < size)
        return 0;
    for (int place = 1; place < size; place++)
        if ((at[place] & 0xc0) != 0x80)
            return 0;
    bool is_bad = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) || (*at == 0xf0 && at[1] < 0x90) ||
                  (*at == 0xf4 && at[1] > 0x8f);
    return is_bad ? 0 : size;
}

/* A text without escapes, the opening quote is passed; `text`: its first byte. -1: it is none. */
static int64_t pass_text(cursor *in, const uint8_t **text) {
    const uint8_t *at = *text = in->at;
    while (at < in->end && *at != '"') {
        if (*at < 0x20 || *at == '\\')
            return -1;
        int size = *at < 0x80 ? 1 : wide(at, in->end);
        if (size == 0)
            return -1;
        at += size;
    }
    if (at == in->end)
        return -1;
    in->at = at + 1;
    return at - *text;
}

static bool is_digit(const cursor *in) { return in->at < in->end && *in->at >= '0' && *in->at <= '9'; }

static bool pass_digits(cursor *in, number *found) {
    const uint8_t *first = in->at;
    for (; is_digit(in); in->at++) {
        if (found->digits > 0 || *in->at != '0')
            found->digits++;
        if (found->digits <= DIGITS)
            found->mantissa = 10 * found->mantissa + (*in->at - '0');
    }
    return in->at > first;
}

static bool pass_number(cursor *in, number *found) {
    *found = (number){.text = in->at, .is_whole = true};
    found->is_negative = pass_word(in, "-");
    const uint8_t *first = in->at;
    if (!pass_digits(in, found) || (*first == '0' && in->at - first > 1))
        return false;
    if (pass_word(in, ".")) {
        const uint8_t *point = in->at;
        found->is_whole = false;
        if (!pass_digits(in, found))
            return false;
        found->fraction = in->at - point;
    }
    if (in->at < in->end && (*in->at == 'e' || *in->at == 'E'))
        return false;
    found->size = in->at - found->text;
    return found->mantissa != 0 || !found->is_negative;
}

static locale_t of_c(void) {
    static _Atomic(locale_t) made;
    locale_t locale = made;
    if (locale == (locale_t)0)
        made = locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* two threads may make one each */
    return locale;
}

/* The nearest double: of few digits by one division, which is exact but for its own rounding. */
static bool to_double(const number *given, double *made) {
    if (given->digits <= EXACT_DIGITS && given->fraction <= EXACT_POWERS) {
        double value = (double)given->mantissa / POWERS[given->fraction];
        *made = given->is_negative ? -value : value;
        return true;
    }
    char text[LONGEST_NUMBER + 1];
    locale_t locale = of_c();
    if (given->size > LONGEST_NUMBER || locale == (locale_t)0)
        return false;
    memcpy(text, given->text, (size_t)given->size);
    text[given->size] = '\0';
    *made = strtod_l(text, NULL, locale);
    return *made - *made == 0;
}

/* A value of a field that is not known. */
static bool pass_any(cursor *in, int depth) {
    const uint8_t *text;
    number found;
    skip_space(in);
    if (in->at == in->end || depth > DEEPEST)
        return false;
    if (pass_word(in, "\""))
        return pass_text(in, &text) >= 0;
    if (*in->at != '{' && *in->at != '[')
        return pass_word(in, "true") || pass_word(in, "false") || pass_word(in, "null") || pass_number(in, &found);
    bool is_object = *in->at++ == '{';
    uint8_t close = is_object ? '}' : ']';
    if (pass(in, close))
        return true;
    do {
        if (is_object && !(pass(in, '"') && pass_text(in, &text) >= 0 && pass(in, ':')))
            return false;
        if (!pass_any(in, depth + 1))
            return false;
    } while (pass(in, ','));
    return pass(in, close);
}

static void put_text(cs_json_field *field, int64_t row, const uint8_t *text, int64_t size) {
    int64_t *ends = field->values;
    if (size > 0)
        memcpy(field->text + ends[row], text, (size_t)size);
    ends[row + 1] = ends[row] + size;
}

static void put_null(cs_json_field *field, int64_t row) {
    field->nulls++;
    if (!(field->flags & CS_JSON_WANTED))
        return;
    field->valid[row] = 0;
    if (field->kind == CS_JSON_TEXT)
        put_text(field, row, NULL, 0);
    else if (field->kind == CS_JSON_TRUTH)
        ((uint8_t *)field->values)[row] = 0;
    else
        ((int64_t *)field->values)[row] = 0;
}

static bool pass_value(cursor *in, cs_json_field *field, int64_t row) {
    bool is_wanted = field->flags & CS_JSON_WANTED, is_true;
    const uint8_t *text;
    number found;
    double made;
    skip_space(in);
    if (pass_word(in, "null")) {
        put_null(field, row);
        return field->flags & CS_JSON_NULLABLE;
    }
    if (is_wanted)
        field->valid[row] = 1;
    switch (field->kind) {
    case CS_JSON_TEXT: {
        int64_t size = pass_word(in, "\"") ? pass_text(in, &text) : -1;
        if (size >= 0 && is_wanted)
            put_text(field, row, text, size);
        return size >= 0;
    }
    case CS_JSON_TRUTH:
        is_true = pass_word(in, "true");
        if (is_wanted)
            ((uint8_t *)field->values)[row] = is_true;
        return is_true || pass_word(in, "false");
    case CS_JSON_WHOLE:
        if (!pass_number(in, &found) || !found.is_whole || found.digits > DIGITS)
            return false;
        if (is_wanted)
            ((int64_t *)field->values)[row] = found.is_negative ? -found.mantissa : found.mantissa;
        return true;
    default:
        if (!pass_number(in, &found) || !to_double(&found, &made))
            return false;
        if (is_wanted)
            ((double *)field->values)[row] = made;
        return true;
    }
}

/* The field of this name; the next one in their order is the likeliest. */
static int64_t find(const cs_json_field *fields, int64_t count, int64_t likely, const uint8_t *name, int64_t size) {
    for (int64_t tried = 0; tried < count; tried++) {
        const cs_json_field *field = &fields[(likely + tried) % count];
        if (field->name_size == size && memcmp(field->name, name, (size_t)size) == 0)
            return (likely + tried) % count;
    }
    return -1;
}

static bool pass_row(cursor *in, cs_json_field *fields, int64_t count, int64_t row, bool is_open) {
    uint64_t seen = 0;
    int64_t likely = 0;
    if (!pass(in, '{'))
        return false;
    if (!pass(in, '}')) {
        do {
            const uint8_t *name;
            int64_t size = pass(in, '"') ? pass_text(in, &name) : -1;
            if (size < 0 || !pass(in, ':'))
                return false;
            int64_t place = find(fields, count, likely, name, size);
            if (place < 0) {
                if (!is_open || !pass_any(in, 0))
                    return false;
                continue;
            }
            if (seen >> place & 1 || !pass_value(in, &fields[place], row))
                return false;
            seen |= (uint64_t)1 << place;
            likely = place + 1;
        } while (pass(in, ','));
        if (!pass(in, '}'))
            return false;
    }
    skip_space(in);
    for (int64_t place = 0; place < count; place++) {
        if (seen >> place & 1)
            continue;
        if (!(fields[place].flags & CS_JSON_MAY_MISS))
            return false;
        put_null(&fields[place], row);
    }
    return in->at == in->end;
}

int64_t cs_json_columns(const uint8_t *content, const int64_t *ends, const uint8_t *there, int64_t rows,
                        cs_json_field *fields, int64_t count, int32_t is_open) {
    int64_t made = 0;
    if (count > CS_JSON_MOST)
        return -1;
    for (int64_t row = 0; row < rows; row++) {
        if (there != NULL && !there[row])
            continue;
        cursor in = {content + ends[row], content + ends[row + 1]};
        if (!pass_row(&in, fields, count, made, is_open))
            return -1;
        made++;
    }
    return made;
}
