/* Damages JPEGs at random and gives them to jpeg_crop.c, which is compiled into this program.
 *
 *     jpeg_crop_fuzz SEED FIRST NUMBER FILE...
 *
 * Input n depends on the seed, n and the files alone: one that is told of is run again by `n 1`.
 * Input and result lie in memory of just their size, so that AddressSanitizer sees a byte beyond.
 */

#include "../../trainer/data/native/jpeg_crop.c"

#include <stdio.h>

void __sanitizer_set_death_callback(void (*callback)(void));

static uint64_t input, state;

static void tell(void) { fprintf(stderr, "input %llu\n", (unsigned long long)input); }

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t next_random(void)
{
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static size_t below(size_t most) { return most ? next_random() % most : 0; }

struct file {
    uint8_t *bytes;
    size_t size, scan; /* where its code words begin */
};

static struct file read_file(const char *path)
{
    struct file file = {0};
    FILE *stream = fopen(path, "rb");
    if (!stream || fseek(stream, 0, SEEK_END)) {
        perror(path);
        exit(2);
    }
    file.size = (size_t)ftell(stream);
    rewind(stream);
    file.bytes = malloc(file.size);
    struct header header;
    if (fread(file.bytes, 1, file.size, stream) != file.size || file.size < 8) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(2);
    }
    fclose(stream);
    int is_plain = !read_header(file.bytes, file.size, &header);
    file.scan = is_plain ? (size_t)(header.scan - file.bytes) : file.size / 2;
    return file;
}

/* Values that lengths, counts and code words break at. */
static uint8_t odd_byte(void)
{
    static const uint8_t odd[] = {0x00, 0x01, 0x0F, 0x10, 0x11, 0x7F, 0x80, 0xC0,
                                  0xC4, 0xDA, 0xDB, 0xDD, 0xF0, 0xFE, 0xFF};
    return below(3) ? (uint8_t)next_random() : odd[below(sizeof odd)];
}

static void damage(struct file *file, size_t room, const struct file *other)
{
    uint8_t *bytes = file->bytes;
    size_t size = file->size;
    /* One half in the header, which is small and decides on all lengths. */
    size_t at = below(2) ? below(file->scan < size ? file->scan : size) : below(size);
    switch (below(8)) {
    case 0: case 1: case 2: bytes[at] = odd_byte(); break;
    case 3: bytes[at] ^= (uint8_t)(1u << below(8)); break;
    case 4: { /* take bytes away */
        size_t num = 1 + below(below(4) ? 4 : size - at);
        num = num < size - at ? num : size - at;
        memmove(bytes + at, bytes + at + num, size - at - num);
        file->size -= num;
        break;
    }
    case 5: { /* put bytes in */
        size_t num = 1 + below(8);
        if (size + num > room)
            break;
        memmove(bytes + at + num, bytes + at, size - at);
        for (size_t i = 0; i < num; i++)
            bytes[at + i] = odd_byte();
        file->size += num;
        break;
    }
    case 6: { /* a piece of another picture */
        size_t from = below(other->size), num = 1 + below(64);
        num = num < other->size - from ? num : other->size - from;
        num = num < size - at ? num : size - at;
        memcpy(bytes + at, other->bytes + from, num);
        break;
    }
    default: /* a run of one value */
        for (size_t i = at, value = odd_byte(); i < size && i < at + 16; i++)
            bytes[i] = (uint8_t)value;
    }
}

/* A rectangle within the picture, or now and then any. */
static struct box any_box(int32_t width, int32_t height)
{
    if (!below(16)) {
        int32_t any[4];
        for (int i = 0; i < 4; i++)
            any[i] = below(2) ? (int32_t)next_random() : (int32_t)below(200) - 50;
        return (struct box){any[0], any[1], any[2], any[3]};
    }
    int32_t left = (int32_t)below(width), top = (int32_t)below(height);
    return (struct box){left, top, 1 + (int32_t)below(width - left),
                        1 + (int32_t)below(height - top)};
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "SEED FIRST NUMBER FILE...\n");
        return 2;
    }
    uint64_t seed = strtoull(argv[1], NULL, 10), first = strtoull(argv[2], NULL, 10);
    uint64_t number = strtoull(argv[3], NULL, 10), outcomes[3] = {0};
    int num_files = argc - 4;
    struct file *files = calloc((size_t)num_files, sizeof *files);
    for (int i = 0; i < num_files; i++)
        files[i] = read_file(argv[4 + i]);
    __sanitizer_set_death_callback(tell);
    for (input = first; input < first + number; input++) {
        state = (seed << 40) ^ input;
        const struct file *whole = &files[below(num_files)], *other = &files[below(num_files)];
        size_t room = whole->size + 64;
        struct file damaged = {malloc(room), whole->size, whole->scan};
        memcpy(damaged.bytes, whole->bytes, whole->size);
        for (size_t times = 1 + below(below(4) ? 3 : 12); times && damaged.size; times--)
            damage(&damaged, room, other);
        /* Without an end all is refused at once. */
        if (damaged.size > 2 && below(64))
            memcpy(damaged.bytes + damaged.size - 2, "\xFF\xD9", 2);
        uint8_t *data = malloc(damaged.size);
        memcpy(data, damaged.bytes, damaged.size);
        free(damaged.bytes);
        int32_t width, height;
        int is_refused = trainyard_size(data, damaged.size, &width, &height);
        if (is_refused)
            outcomes[0]++;
        /* Of a damaged size the rest would be a test of the allocator. */
        else if ((int64_t)width * height <= 1 << 20) {
            struct box box = any_box(width, height);
            int32_t side = 1 + (int32_t)below(below(8) ? 32 : 300);
            uint8_t *out = malloc((size_t)side * side * 3);
            int found = trainyard_crop(data, damaged.size, box.left, box.top, box.right,
                                       box.bottom, (int32_t)below(2), side, out);
            outcomes[found ? 1 : 2]++;
            free(out);
        }
        free(data);
        if ((input + 1 - first) % 1000000 == 0) {
            printf("%llu\n", (unsigned long long)(input + 1 - first));
            fflush(stdout);
        }
    }
    printf("%llu inputs: %llu refused by header, %llu by scan, %llu decoded\n",
           (unsigned long long)number, (unsigned long long)outcomes[0],
           (unsigned long long)outcomes[1], (unsigned long long)outcomes[2]);
    for (int i = 0; i < num_files; i++)
        free(files[i].bytes);
    free(files);
    return 0;
}
