/* Decodes a rectangle of a baseline JPEG and resizes it to a square, all in one pass over the file.
 *
 * Of what lies above and beside the rectangle only the code words are passed over, what lies below
 * is not looked at. Pixels are those of libjpeg's accurate decoder (its integer IDCT, triangle
 * upsampling, BT.601), the resizing is that of a triangle filter that widens with the scale
 * (antialiased), horizontally first, in 16-bit weights, as PyTorch does it for bytes.
 *
 * What is not plain (progressive, CMYK, restarts, odd sampling, any damage) is refused, for another
 * decoder to read or to name. ITU-T T.81: annex B (markers), F.2 (Huffman decoding), A.3.3 (IDCT;
 * the factorisation is that of Loeffler, Ligtenberg and Moschytz 1989).
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <immintrin.h>

enum { OK = 0, REFUSED = 1, NO_MEMORY = 2 };
/* Bits that one look into a table decides on, and the zeroes that may be read after the data. */
enum { LOOK = 11, PAD = 64, MAX_SIDE = 65500, MAX_RESULT = 4096, MAX_PIXELS = (1 << 30) / 12 };

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }

/* Position in a block of the k-th coefficient; what a damaged run reaches past the last falls on a
 * place of its own. */
static const uint8_t ZIGZAG[80] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33,
    40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36,
    29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64,
};

/* --- header ---------------------------------------------------------------------------------- */

struct huffman {
    uint8_t values[256];
    uint8_t counts[17];
    int is_there;
};

struct component {
    int id, h, v, quantiser, dc_table, ac_table;
};

struct header {
    int width, height, num_components;
    struct component components[3];
    uint16_t quantisers[4][64]; /* in zigzag order */
    int has_quantiser[4];
    struct huffman tables[2][4]; /* DC, AC */
    const uint8_t *scan, *end;
};

static int read_tables(const uint8_t *p, const uint8_t *end, struct header *header)
{
    while (p < end) {
        if (end - p < 17)
            return REFUSED;
        int kind = p[0] >> 4, number = p[0] & 15, total = 0;
        if (kind > 1 || number > 3)
            return REFUSED;
        struct huffman *table = &header->tables[kind][number];
        /* More codes of a length than there is room for would lead out of the tables. */
        int room = 1;
        for (int length = 1; length <= 16; length++) {
            table->counts[length] = p[length];
            total += p[length];
            room = 2 * room - p[length];
            if (room < 0)
                return REFUSED;
        }
        if (total > 256 || end - p < 17 + total)
            return REFUSED;
        /* Samples of 8 bits differ by 11 bits at most; what more means is for libjpeg to say. */
        for (int i = 0; kind == 0 && i < total; i++)
            if (p[17 + i] > 11)
                return REFUSED;
        memcpy(table->values, p + 17, total);
        table->is_there = 1;
        p += 17 + total;
    }
    return OK;
}

static int read_quantisers(const uint8_t *p, const uint8_t *end, struct header *header)
{
    while (p < end) {
        int is_wide = p[0] >> 4, number = p[0] & 15;
        if (is_wide > 1 || number > 3 || end - p < 1 + 64 * (1 + is_wide))
            return REFUSED;
        for (int k = 0; k < 64; k++)
            header->quantisers[number][k] =
                is_wide ? (uint16_t)(p[1 + 2 * k] << 8 | p[2 + 2 * k]) : p[1 + k];
        header->has_quantiser[number] = 1;
        p += 1 + 64 * (1 + is_wide);
    }
    return OK;
}

static int read_frame(const uint8_t *p, const uint8_t *end, struct header *header)
{
    if (end - p < 6 || p[0] != 8 || header->num_components)
        return REFUSED;
    header->height = p[1] << 8 | p[2];
    header->width = p[3] << 8 | p[4];
    int num = p[5];
    if ((num != 1 && num != 3) || end - p != 6 + 3 * num)
        return REFUSED;
    if (header->height < 1 || header->width < 8 || header->height > MAX_SIDE ||
        header->width > MAX_SIDE || (int64_t)header->width * header->height > MAX_PIXELS)
        return REFUSED;
    for (int i = 0; i < num; i++) {
        struct component *c = &header->components[i];
        const uint8_t *q = p + 6 + 3 * i;
        c->id = q[0], c->h = q[1] >> 4, c->v = q[1] & 15, c->quantiser = q[2];
        if (c->quantiser > 3)
            return REFUSED;
    }
    header->num_components = num;
    struct component *c = header->components;
    if (num == 1) {
        c->h = c->v = 1; /* one component is never interleaved, whatever its factors */
        return OK;
    }
    /* Other numbers may mean other colours. */
    if (c[0].id != 1 || c[1].id != 2 || c[2].id != 3)
        return REFUSED;
    for (int i = 1; i < 3; i++)
        if (c[i].h != 1 || c[i].v != 1)
            return REFUSED;
    return c[0].h <= 2 && c[0].v <= c[0].h && c[0].h && c[0].v ? OK : REFUSED;
}

static int read_scan(const uint8_t *p, const uint8_t *end, struct header *header)
{
    int num = header->num_components;
    if (!num || end - p != 4 + 2 * num || p[0] != num)
        return REFUSED;
    for (int i = 0; i < num; i++) {
        struct component *c = &header->components[i];
        if (p[1 + 2 * i] != c->id)
            return REFUSED;
        c->dc_table = p[2 + 2 * i] >> 4, c->ac_table = p[2 + 2 * i] & 15;
        if (c->dc_table > 3 || c->ac_table > 3 || !header->tables[0][c->dc_table].is_there ||
            !header->tables[1][c->ac_table].is_there || !header->has_quantiser[c->quantiser])
            return REFUSED;
    }
    const uint8_t *spectrum = p + 1 + 2 * num;
    return spectrum[0] == 0 && spectrum[1] == 63 && spectrum[2] == 0 ? OK : REFUSED;
}

static int read_header(const uint8_t *data, size_t size, struct header *header)
{
    memset(header, 0, sizeof *header);
    const uint8_t *p = data + 2, *end = data + size;
    /* A file without an end may be cut off anywhere, also below what is looked at. */
    if (size < 4 || data[0] != 0xFF || data[1] != 0xD8 || end[-2] != 0xFF || end[-1] != 0xD9)
        return REFUSED;
    for (;;) {
        if (end - p < 4 || p[0] != 0xFF)
            return REFUSED;
        int marker = p[1], length = p[2] << 8 | p[3];
        if (length < 2 || end - p < 2 + length)
            return REFUSED;
        const uint8_t *from = p + 4, *to = p + 2 + length;
        int found = OK;
        if (marker == 0xC0 || marker == 0xC1)
            found = read_frame(from, to, header);
        else if (marker == 0xC4)
            found = read_tables(from, to, header);
        else if (marker == 0xDB)
            found = read_quantisers(from, to, header);
        else if (marker == 0xDD) /* restarts: only an interval of none is plain */
            found = to - from == 2 && !from[0] && !from[1] ? OK : REFUSED;
        else if (marker == 0xEE && to - from >= 12 && !memcmp(from, "Adobe", 5))
            found = from[11] == 1 ? OK : REFUSED; /* 1: YCbCr */
        else if (marker == 0xDA) {
            found = read_scan(from, to, header);
            header->scan = to, header->end = end;
            return found;
        } else if (!((marker >= 0xE0 && marker <= 0xEF) || marker == 0xFE))
            return REFUSED;
        if (found)
            return found;
        p = to;
    }
}

/* --- bits and code words ---------------------------------------------------------------------- */

struct bits {
    uint64_t held; /* the next bits, from the highest one on */
    int count;
    const uint8_t *next, *last; /* what may be read without leaving the padding */
};

static inline void refill(struct bits *bits)
{
    uint64_t loaded;
    const uint8_t *from = bits->next < bits->last ? bits->next : bits->last;
    memcpy(&loaded, from, 8);
    loaded = __builtin_bswap64(loaded);
    bits->held |= loaded >> bits->count;
    bits->next += (63 - bits->count) >> 3;
    bits->count |= 56;
}

static inline uint32_t peek(const struct bits *bits, int number)
{
    return (uint32_t)(bits->held >> (64 - number));
}

static inline void take(struct bits *bits, int number)
{
    bits->held <<= number;
    bits->count -= number;
}

/* The number that `size` bits mean (T.81, F.2.2.1); size is 1 to 16. */
static inline int extend(uint32_t found, int size)
{
    int value = (int)found;
    return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

/* What a look at LOOK bits tells, in fields of one number, so that one load gives them all:
 *   bits 0-5    how many bits were told of; 0 where the code word is longer than LOOK
 *   bit 7       whether the value is told, too (its bits are then counted)
 *   bits 8-14   coefficients gone past; the end of a block goes past all of them
 *   bits 16-31  the value, or without it the symbol */
typedef uint32_t entry;

static inline int entry_used(entry found) { return found & 63; }
static inline int entry_is_whole(entry found) { return found >> 7 & 1; }
static inline int entry_advance(entry found) { return found >> 8 & 127; }
static inline int entry_value(entry found) { return (int32_t)found >> 16; }

struct decoder {
    entry look[1 << LOOK];
    /* For blocks that nobody sees: bits and coefficients of one code word with its value, and of
     * two where the second code word is within the LOOK bits. */
    uint16_t skip[1 << LOOK], skip_two[1 << LOOK];
    int32_t last_code[17], first_value[17];
    uint8_t values[256];
};

static void make_decoder(const struct huffman *table, struct decoder *decoder)
{
    memset(decoder->look, 0, sizeof decoder->look);
    memset(decoder->skip, 0, sizeof decoder->skip);
    memcpy(decoder->values, table->values, sizeof decoder->values);
    uint8_t lengths[1 << LOOK] = {0};
    int code = 0, number = 0;
    for (int length = 1; length <= 16; length++) {
        decoder->first_value[length] = number - code;
        for (int i = 0; i < table->counts[length]; i++, code++, number++) {
            if (length > LOOK)
                continue;
            int symbol = table->values[number], run = symbol >> 4, size = symbol & 15;
            uint32_t advance = (uint32_t)(size || run == 15 ? run + 1 : 64) << 8;
            for (int rest = 0; rest < 1 << (LOOK - length); rest++) {
                int place = code << (LOOK - length) | rest;
                lengths[place] = (uint8_t)length;
                decoder->skip[place] = (uint16_t)(advance | (uint32_t)(length + size));
                decoder->look[place] = (uint32_t)symbol << 16 | advance | (uint32_t)length;
                if (size && length + size <= LOOK) {
                    uint32_t found = (uint32_t)rest >> (LOOK - length - size);
                    uint32_t value = (uint32_t)extend(found & ((1u << size) - 1), size);
                    decoder->look[place] =
                        value << 16 | advance | 1 << 7 | (uint32_t)(length + size);
                }
            }
        }
        decoder->last_code[length] = code - 1;
        code <<= 1;
    }
    for (int place = 0; place < 1 << LOOK; place++) {
        uint32_t first = decoder->skip[place], used = first & 63;
        if (!first || used > LOOK)
            used = LOOK;
        int rest = place << used & ((1 << LOOK) - 1);
        /* The second is told by bits that are there, not by the zeroes shifted in behind them. */
        int is_told = first >> 8 < 64 && lengths[rest] && used + lengths[rest] <= LOOK;
        decoder->skip_two[place] = (uint16_t)(first + (is_told ? decoder->skip[rest] : 0));
    }
}

/* The symbol of a code word longer than LOOK; -1 for one that is none. */
static int long_symbol(struct bits *bits, const struct decoder *decoder)
{
    for (int length = LOOK + 1; length <= 16; length++) {
        int code = (int)peek(bits, length);
        if (code <= decoder->last_code[length]) {
            int place = code + decoder->first_value[length];
            if (place < 0 || place > 255)
                return -1;
            take(bits, length);
            return decoder->values[place];
        }
    }
    return -1;
}

/* The difference of a block's mean from the last one's; size is at most 16 bits. */
static inline int decode_mean(struct bits *bits, const struct decoder *decoder, int *is_wrong)
{
    refill(bits);
    entry found = decoder->look[peek(bits, LOOK)];
    int size = entry_value(found);
    take(bits, entry_used(found));
    if (LIKELY(entry_is_whole(found)))
        return size;
    if (UNLIKELY(!entry_used(found)))
        size = long_symbol(bits, decoder);
    if (size < 0 || size > 11) {
        *is_wrong = 1;
        return 0;
    }
    if (!size)
        return 0;
    int value = extend(peek(bits, size), size);
    take(bits, size);
    return value;
}

/* Decode the other coefficients of a block, times their quantisers; gives whether it is damaged. */
static inline int decode_block(struct bits *all, const struct decoder *decoder,
                               const int32_t *restrict quantiser, int32_t *restrict block)
{
    struct bits bits = *all;
    int k = 1;
    while (k < 64) {
        if (bits.count < 32)
            refill(&bits);
        entry found = decoder->look[peek(&bits, LOOK)];
        take(&bits, entry_used(found));
        if (LIKELY(entry_is_whole(found))) {
            k += entry_advance(found);
            block[ZIGZAG[k - 1]] = entry_value(found) * quantiser[k - 1];
            continue;
        }
        int symbol = entry_value(found);
        if (UNLIKELY(!entry_used(found)) && (symbol = long_symbol(&bits, decoder)) < 0)
            return 1;
        int run = symbol >> 4, size = symbol & 15;
        if (!size) {
            if (run != 15)
                break;
            k += 16;
            continue;
        }
        k += run;
        block[ZIGZAG[k]] = extend(peek(&bits, size), size) * quantiser[k];
        take(&bits, size);
        k++;
    }
    *all = bits;
    return k > 64;
}

static inline int skip_block(struct bits *all, const struct decoder *decoder)
{
    struct bits bits = *all;
    int k = 1;
    while (k < 64) {
        if (bits.count < 32)
            refill(&bits);
        /* Up to there a first code word cannot end the block, so that a second belongs to it. */
        const uint16_t *table = k < 48 ? decoder->skip_two : decoder->skip;
        uint32_t found = table[peek(&bits, LOOK)];
        if (LIKELY(found)) {
            take(&bits, found & 63);
            k += (int)(found >> 8);
            continue;
        }
        int symbol = long_symbol(&bits, decoder);
        if (symbol < 0)
            return 1;
        int run = symbol >> 4, size = symbol & 15;
        if (!size && run != 15)
            break;
        take(&bits, size);
        k += run + 1;
    }
    *all = bits;
    return 0;
}

/* --- inverse cosine transform ------------------------------------------------------------------ */

/* Pairs of the low 16 bits of both, to be multiplied by pairs of constants and summed up. */
static inline __m256i pair(__m256i a, __m256i b)
{
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xAA);
}

static inline __m256i sum_of(__m256i pairs, int a, int b)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi32((int)((uint32_t)b << 16 | (a & 0xFFFF))));
}

/* One dimension for eight columns at once; `shift` scales the result down, rounding. Constants are
 * those of the factorisation in 13 bits; two that follow a common sum are put together. */
static inline __attribute__((always_inline)) void transform(__m256i *row, int shift)
{
    __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    __m256i outer = pair(row[0], row[4]), inner = pair(row[2], row[6]);
    __m256i c = _mm256_add_epi32(sum_of(outer, 8192, 8192), half);
    __m256i d = _mm256_add_epi32(sum_of(outer, 8192, -8192), half);
    __m256i b = sum_of(inner, 4433 + 6270, 4433), a = sum_of(inner, 4433, 4433 - 15137);
    __m256i even[4] = {_mm256_add_epi32(c, b), _mm256_add_epi32(d, a), _mm256_sub_epi32(d, a),
                       _mm256_sub_epi32(c, b)};

    __m256i sums = pair(_mm256_add_epi32(row[7], row[3]), _mm256_add_epi32(row[5], row[1]));
    __m256i r = sum_of(sums, 9633 - 16069, 9633), t = sum_of(sums, 9633, 9633 - 3196);
    __m256i first = pair(row[7], row[1]), second = pair(row[5], row[3]);
    __m256i odd[4] = {_mm256_add_epi32(sum_of(first, -7373, 12299 - 7373), t),
                      _mm256_add_epi32(sum_of(second, -20995, 25172 - 20995), r),
                      _mm256_add_epi32(sum_of(second, 16819 - 20995, -20995), t),
                      _mm256_add_epi32(sum_of(first, 2446 - 7373, -7373), r)};
    for (int i = 0; i < 4; i++) {
        row[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), shift);
        row[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), shift);
    }
}

static inline __attribute__((always_inline)) void transpose(__m256i *row)
{
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(row[i], row[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(row[i], row[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = _mm256_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
    for (int j = 0; j < 4; j++) {
        row[j] = _mm256_permute2x128_si256(b[j], b[4 + j], 0x20);
        row[4 + j] = _mm256_permute2x128_si256(b[j], b[4 + j], 0x31);
    }
}

static void put_block(const int32_t *block, uint8_t *out, ptrdiff_t stride)
{
    __m256i row[8];
    for (int y = 0; y < 8; y++)
        row[y] = _mm256_load_si256((const __m256i *)block + y);
    transform(row, 11);
    transpose(row);
    transform(row, 18);
    /* Now each vector is a column. Four of them side by side are turned over byte by byte. */
    const __m256i turn =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i middle = _mm256_set1_epi16(128);
    __m256i sides[2];
    for (int i = 0; i < 2; i++) {
        __m256i left = _mm256_packs_epi32(row[4 * i], row[4 * i + 1]);
        __m256i right = _mm256_packs_epi32(row[4 * i + 2], row[4 * i + 3]);
        left = _mm256_adds_epi16(left, middle), right = _mm256_adds_epi16(right, middle);
        sides[i] = _mm256_shuffle_epi8(_mm256_packus_epi16(left, right), turn);
    }
    __m256i near = _mm256_unpacklo_epi32(sides[0], sides[1]);
    __m256i far = _mm256_unpackhi_epi32(sides[0], sides[1]);
    __m128i lines[4] = {_mm256_castsi256_si128(near), _mm256_castsi256_si128(far),
                        _mm256_extracti128_si256(near, 1), _mm256_extracti128_si256(far, 1)};
    for (int i = 0; i < 4; i++, out += 2 * stride) {
        _mm_storel_epi64((__m128i *)out, lines[i]);
        _mm_storeh_pd((double *)(out + stride), _mm_castsi128_pd(lines[i]));
    }
}

/* --- the rectangle's planes --------------------------------------------------------------------- */

/* A component's samples around the rectangle: whole blocks from (x0, y0) on. */
struct plane {
    int x0, y0, x1, y1; /* in blocks */
    int width, height;  /* of the whole component, in samples */
    ptrdiff_t stride;
    uint8_t *samples;
};

struct box {
    int left, top, right, bottom;
};

static void place_plane(struct plane *plane, const struct header *header, int number,
                        const struct box *box)
{
    const struct component *c = &header->components[number], *most = header->components;
    int across = most->h / c->h, down = most->v / c->v;
    plane->width = (header->width + across - 1) / across;
    plane->height = (header->height + down - 1) / down;
    /* Samples between others are mixed from their neighbours. */
    int left = max(0, box->left / across - (across > 1));
    int top = max(0, box->top / down - (down > 1));
    int right = min(plane->width, (box->right - 1) / across + 1 + (across > 1));
    int bottom = min(plane->height, (box->bottom - 1) / down + 1 + (down > 1));
    plane->x0 = left / 8, plane->y0 = top / 8;
    plane->x1 = (right + 7) / 8, plane->y1 = (bottom + 7) / 8;
    plane->stride = 8 * (ptrdiff_t)(plane->x1 - plane->x0);
}

static inline const uint8_t *plane_row(const struct plane *plane, int y)
{
    return plane->samples + (y - 8 * plane->y0) * plane->stride - 8 * plane->x0;
}

/* Copy the scan without its stuffed zeroes; gives the end of the copy, NULL where it has a marker
 * before its end. */
static uint8_t *unstuff(const struct header *header, uint8_t *out)
{
    const uint8_t *p = header->scan, *end = header->end - 2;
    while (p < end) {
        const uint8_t *found = memchr(p, 0xFF, (size_t)(end - p));
        size_t length = (size_t)((found ? found + 1 : end) - p);
        memcpy(out, p, length);
        out += length, p += length;
        if (found) {
            if (p < end && *p != 0)
                return NULL;
            p++;
        }
    }
    memset(out, 0, PAD);
    return out;
}

struct work {
    struct decoder decoders[2][4];
    int32_t quantisers[3][80];
    struct plane planes[3];
};

static int decode_planes(const struct header *header, struct work *work, struct bits *bits)
{
    int num = header->num_components;
    const struct component *most = header->components;
    int across = (header->width + 8 * most->h - 1) / (8 * most->h);
    int num_rows = 0, means[3] = {0, 0, 0};
    for (int i = 0; i < num; i++)
        num_rows = max(num_rows, (work->planes[i].y1 + header->components[i].v - 1) /
                                     header->components[i].v);
    int32_t block[72] __attribute__((aligned(32)));
    for (int row = 0; row < num_rows; row++) {
        int is_wrong = 0;
        for (int column = 0; column < across; column++)
            for (int i = 0; i < num; i++) {
                const struct component *c = &header->components[i];
                const struct plane *plane = &work->planes[i];
                const struct decoder *others = &work->decoders[1][c->ac_table];
                for (int each = 0; each < c->h * c->v; each++) {
                    int x = column * c->h + each % c->h, y = row * c->v + each / c->h;
                    int mean = decode_mean(bits, &work->decoders[0][c->dc_table], &is_wrong);
                    means[i] = (int16_t)(means[i] + mean);
                    if (x < plane->x0 || x >= plane->x1 || y < plane->y0 || y >= plane->y1) {
                        is_wrong |= skip_block(bits, others);
                        continue;
                    }
                    memset(block, 0, 64 * sizeof *block);
                    block[0] = means[i] * work->quantisers[i][0];
                    is_wrong |= decode_block(bits, others, work->quantisers[i], block);
                    put_block(block,
                              plane->samples + 8 * (y - plane->y0) * plane->stride +
                                  8 * (x - plane->x0),
                              plane->stride);
                }
            }
        /* More was taken than there is: the last bits were the padding's. */
        if (is_wrong || bits->next - bits->count / 8 > bits->last)
            return REFUSED;
    }
    return OK;
}

/* --- rows of colours ----------------------------------------------------------------------------- */

/* Twice as wide: of the two samples in place of one, each takes a quarter from that side's
 * neighbour. `sums` are samples times `1 << unit`, and hold one more at each side. */
static inline __attribute__((always_inline)) void
widen(const uint16_t *restrict sums, int num, int unit, uint8_t *restrict out)
{
    for (int i = 0; i < num; i++) {
        uint16_t even = (3 * sums[i + 1] + sums[i] + (unit ? 8 : 1)) >> (2 + unit);
        uint16_t odd = (3 * sums[i + 1] + sums[i + 2] + (unit ? 7 : 2)) >> (2 + unit);
        uint16_t both = (uint16_t)(even | odd << 8);
        memcpy(out + 2 * i, &both, 2);
    }
}

/* The chroma of one row of the rectangle at full width; gives its first sample. */
static const uint8_t *chroma_row(const struct header *header, const struct plane *plane, int y,
                                 const struct box *box, uint16_t *restrict sums,
                                 uint8_t *restrict wide)
{
    const struct component *most = header->components;
    if (most->h == 1)
        return plane_row(plane, y) + box->left;
    int first = box->left / 2, num = (box->right - 1) / 2 + 1 - first;
    /* Beyond an edge of the picture is what is at the edge. */
    int begin = first ? -1 : 0, end = first + num < plane->width ? num + 1 : num;
    int other = y % 2 ? y / 2 + 1 : y / 2 - 1;
    const uint8_t *restrict near = plane_row(plane, most->v == 1 ? y : y / 2) + first;
    const uint8_t *restrict far = plane_row(plane, min(max(other, 0), plane->height - 1)) + first;
    if (most->v == 1)
        for (int i = begin; i < end; i++)
            sums[i + 1] = near[i];
    else
        for (int i = begin; i < end; i++)
            sums[i + 1] = (uint16_t)(3 * near[i] + far[i]);
    if (!first)
        sums[0] = sums[1];
    if (end == num)
        sums[num + 1] = sums[num];
    if (most->v == 1)
        widen(sums, num, 0, wide);
    else
        widen(sums, num, 2, wide);
    return wide + box->left % 2;
}

static inline int32_t clamp(int32_t value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

static void colour_row(const uint8_t *restrict luma, const uint8_t *restrict blue,
                       const uint8_t *restrict red, int num, uint32_t *restrict out)
{
    for (int x = 0; x < num; x++) {
        int32_t level = luma[x], u = blue[x] - 128, v = red[x] - 128;
        int32_t r = clamp(level + ((91881 * v + 32768) >> 16));
        int32_t g = clamp(level + ((-22554 * u - 46802 * v + 32768) >> 16));
        int32_t b = clamp(level + ((116130 * u + 32768) >> 16));
        out[x] = (uint32_t)(r | g << 8 | b << 16);
    }
}

static void grey_row(const uint8_t *restrict luma, int num, uint32_t *restrict out)
{
    for (int x = 0; x < num; x++)
        out[x] = luma[x] * 0x010101u;
}

/* --- resizing ------------------------------------------------------------------------------------ */

/* For each place of the result: the first of `taps` places that it is made of, and their weights. */
struct filter {
    int taps, shift;
    int *first;
    int16_t *weights;
};

static int make_filter(struct filter *filter, int from, int to)
{
    double scale = (double)from / to, support = scale > 1 ? scale : 1, most = 0;
    int room = (int)support + (support > (int)support) ;
    room = room * 2 + 1;
    double *exact = calloc((size_t)room * to, sizeof *exact);
    filter->first = malloc((size_t)to * sizeof *filter->first);
    filter->weights = calloc(((size_t)room + 1) * to, sizeof *filter->weights);
    if (!exact || !filter->first || !filter->weights) {
        free(exact);
        return NO_MEMORY;
    }
    int taps = 1;
    for (int i = 0; i < to; i++) {
        double center = scale * (i + 0.5), total = 0;
        int first = max(0, (int)(center - support + 0.5));
        int num = min(min(from, (int)(center + support + 0.5)) - first, room);
        double *weights = exact + (size_t)room * i;
        for (int k = 0; k < num; k++) {
            double far = (k + first - center + 0.5) / support;
            far = far < 0 ? -far : far;
            weights[k] = far < 1 ? 1 - far : 0;
            total += weights[k];
        }
        for (int k = 0; k < num; k++) {
            weights[k] = total ? weights[k] / total : 0;
            most = weights[k] > most ? weights[k] : most;
        }
        filter->first[i] = first;
        taps = max(taps, num);
    }
    /* As many bits as the largest weight leaves room for. */
    filter->shift = 0;
    while (filter->shift < 22 && (int)(0.5 + most * (1 << (filter->shift + 1))) < 1 << 15)
        filter->shift++;
    filter->taps = taps += taps % 2;
    for (int i = 0; i < to; i++) {
        /* All places have as many taps; what would lie outside weighs nothing, one place earlier. */
        int first = max(0, min(filter->first[i], from - taps)), moved = filter->first[i] - first;
        for (int k = 0; k < room && k + moved < taps; k++)
            filter->weights[(size_t)i * taps + k + moved] =
                (int16_t)(exact[(size_t)room * i + k] * (1 << filter->shift) + 0.5);
        filter->first[i] = first;
    }
    free(exact);
    return OK;
}

static void free_filter(struct filter *filter)
{
    free(filter->first);
    free(filter->weights);
}

/* Mix `pairs` times two neighbours by their weights; reads all of them, also those of no weight. */
static inline __attribute__((always_inline)) uint32_t
mix(const uint32_t *from, const int16_t *weights, int pairs, int shift)
{
    /* Two pixels as red, red, green, green, ... in 16 bits each. */
    const __m128i spread = _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
    __m128i sum = _mm_set1_epi32(1 << (shift - 1));
    for (int k = 0; k < pairs; k++) {
        int32_t both;
        memcpy(&both, weights + 2 * k, 4);
        __m128i two = _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)(from + 2 * k)), spread);
        sum = _mm_add_epi32(sum, _mm_madd_epi16(two, _mm_set1_epi32(both)));
    }
    sum = _mm_srai_epi32(sum, shift);
    sum = _mm_packus_epi32(sum, sum);
    return (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
}

static void resize_row(const struct filter *filter, const uint32_t *from, int size, int is_flipped,
                       uint32_t *out)
{
    int pairs = filter->taps / 2, shift = filter->shift;
    const int16_t *weights = filter->weights;
    const int *first = filter->first;
    ptrdiff_t step = is_flipped ? -1 : 1;
    out += is_flipped ? size - 1 : 0;
#define ALL(number)                                                                                \
    for (int i = 0; i < size; i++, out += step)                                                    \
        *out = mix(from + first[i], weights + (size_t)i * 2 * (number), number, shift)
    /* A known number of pairs needs no loop. */
    switch (pairs) {
    case 1: ALL(1); break;
    case 2: ALL(2); break;
    case 3: ALL(3); break;
    default: ALL(pairs);
    }
#undef ALL
}

/* Mix two pixels each of `pairs` times two rows, `stride` bytes apart, by the rows' weights. */
static inline __attribute__((always_inline)) uint64_t
mix_rows(const uint8_t *from, ptrdiff_t stride, const int16_t *weights, int pairs, int shift)
{
    __m256i sum = _mm256_set1_epi32(1 << (shift - 1));
    for (int k = 0; k < pairs; k++) {
        int32_t both;
        memcpy(&both, weights + 2 * k, 4);
        __m128i upper = _mm_loadl_epi64((const __m128i *)(from + 2 * k * stride));
        __m128i lower = _mm_loadl_epi64((const __m128i *)(from + (2 * k + 1) * stride));
        __m256i two = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(upper, lower));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(two, _mm256_set1_epi32(both)));
    }
    sum = _mm256_srai_epi32(sum, shift);
    __m128i mixed = _mm_packus_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(mixed, mixed));
}

/* `rows` have room for one pixel more behind the last. */
static void resize_columns(const struct filter *filter, const uint8_t *rows, int size, uint8_t *out)
{
    ptrdiff_t num = 4 * (ptrdiff_t)size;
    int pairs = filter->taps / 2, shift = filter->shift;
    uint8_t line[4 * MAX_RESULT + 4];
    for (int y = 0; y < size; y++) {
        const int16_t *weights = filter->weights + (size_t)y * filter->taps;
        const uint8_t *from = rows + filter->first[y] * num;
#define ALL(number)                                                                                \
    for (ptrdiff_t i = 0; i < num; i += 8) {                                                       \
        uint64_t mixed = mix_rows(from + i, num, weights, number, shift);                          \
        memcpy(line + i, &mixed, 8);                                                               \
    }
        switch (pairs) {
        case 1: ALL(1) break;
        case 2: ALL(2) break;
        case 3: ALL(3) break;
        default: ALL(pairs)
        }
#undef ALL
        for (int x = 0; x < size; x++, out += 3)
            memcpy(out, line + 4 * x, 3);
    }
}

static int resize_planes(const struct header *header, const struct work *work,
                         const struct box *box, int is_flipped, int size, uint8_t *out)
{
    int width = box->right - box->left, height = box->bottom - box->top, found = NO_MEMORY;
    struct filter across = {0}, down = {0};
    uint32_t *row = calloc((size_t)width + 16, sizeof *row);
    /* Two more than there are: an odd filter has a pair too large, of which one weighs nothing. */
    uint8_t *rows = calloc((size_t)height + 2, (size_t)size * 4);
    uint16_t *sums = malloc(((size_t)width + 16) * sizeof *sums);
    uint8_t *wide = malloc(2 * ((size_t)width + 16));
    if (row && rows && sums && wide && !make_filter(&across, width, size) &&
        !make_filter(&down, height, size)) {
        for (int y = box->top; y < box->bottom; y++) {
            const uint8_t *luma = plane_row(&work->planes[0], y) + box->left;
            if (header->num_components == 1)
                grey_row(luma, width, row);
            else {
                const uint8_t *blue, *red;
                blue = chroma_row(header, &work->planes[1], y, box, sums, wide);
                red = chroma_row(header, &work->planes[2], y, box, sums, wide + width + 16);
                colour_row(luma, blue, red, width, row);
            }
            resize_row(&across, row, size, is_flipped,
                       (uint32_t *)rows + (size_t)(y - box->top) * size);
        }
        resize_columns(&down, rows, size, out);
        found = OK;
    }
    free(row), free(rows), free(sums), free(wide);
    free_filter(&across), free_filter(&down);
    return found;
}

/* --- what is called ------------------------------------------------------------------------------ */

/* Whether `trainyard_crop` can be tried, and the picture's width and height. */
int trainyard_size(const uint8_t *data, size_t size, int32_t *width, int32_t *height)
{
    struct header header;
    int found = read_header(data, size, &header);
    *width = header.width, *height = header.height;
    return found;
}

/* Write the rectangle, resized to side x side pixels of red, green and blue, mirrored or not. */
int trainyard_crop(const uint8_t *data, size_t size, int32_t left, int32_t top, int32_t width,
                   int32_t height, int32_t is_flipped, int32_t side, uint8_t *out)
{
    struct header header;
    struct box box = {left, top, left + width, top + height};
    int found = read_header(data, size, &header);
    if (found)
        return found;
    if (left < 0 || top < 0 || width < 1 || height < 1 || width > header.width - left ||
        height > header.height - top || side < 1 || side > MAX_RESULT)
        return REFUSED;
    struct work *work = malloc(sizeof *work);
    uint8_t *scan = malloc((size_t)(header.end - header.scan) + PAD);
    if (!work || !scan) {
        free(work), free(scan);
        return NO_MEMORY;
    }
    size_t total = 0, sizes[3] = {0};
    for (int i = 0; i < header.num_components; i++) {
        const struct component *c = &header.components[i];
        struct plane *plane = &work->planes[i];
        place_plane(plane, &header, i, &box);
        sizes[i] = 8 * (size_t)(plane->y1 - plane->y0) * plane->stride;
        total += sizes[i];
        /* The two chroma components nearly always share theirs. */
        if (i < 2 || c->dc_table != c[-1].dc_table)
            make_decoder(&header.tables[0][c->dc_table], &work->decoders[0][c->dc_table]);
        if (i < 2 || c->ac_table != c[-1].ac_table)
            make_decoder(&header.tables[1][c->ac_table], &work->decoders[1][c->ac_table]);
        memset(work->quantisers[i], 0, sizeof work->quantisers[i]);
        for (int k = 0; k < 64; k++)
            work->quantisers[i][k] = header.quantisers[c->quantiser][k];
    }
    uint8_t *samples = malloc(total), *end = unstuff(&header, scan);
    found = !samples ? NO_MEMORY : !end ? REFUSED : OK;
    if (!found) {
        uint8_t *next = samples;
        for (int i = 0; i < header.num_components; next += sizes[i++])
            work->planes[i].samples = next;
        struct bits bits = {0, 0, scan, end};
        found = decode_planes(&header, work, &bits);
    }
    if (!found)
        found = resize_planes(&header, work, &box, is_flipped, side, out);
    free(samples), free(scan), free(work);
    return found;
}
