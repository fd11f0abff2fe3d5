/* The loops over bytes: of `_frames.py`, and of parsing examples.
 *
 * Optional: `_frames.py` has a loop in Python, and examples are read by protobuf without this file.
 * The tests compare the two. Plain C without Python.h, called with ctypes on whole blocks, so that
 * one library serves all versions of Python and the interpreter lock is free meanwhile.
 *
 * All bytes come from files and may be anything. The rule for every read: the position was compared
 * with the end of the enclosing piece, and that piece lies in the buffer. Positions are int64_t, no
 * length has more than 28 bits (or it was compared with what is left), so no sum overflows.
 */

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define X86 1
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

#define VERSION 5
#define MOST_FEATURES 128

int32_t replicax_version(void) { return VERSION; }

/* ---- CRC-32C ---------------------------------------------------------------------------------- */

static uint32_t table[8][256];

/* Must be called once, before anything else. */
void replicax_start(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
    table[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; byte++)
    for (int i = 1; i < 8; i++)
      table[i][byte] = (table[i - 1][byte] >> 8) ^ table[0][table[i - 1][byte] & 0xFF];
}

static uint64_t load64(const uint8_t *bytes) {
  uint64_t value;
  memcpy(&value, bytes, 8); /* little-endian machines only; the loader makes sure */
  return value;
}

static uint32_t load32(const uint8_t *bytes) {
  uint32_t value;
  memcpy(&value, bytes, 4);
  return value;
}

uint32_t replicax_crc_by_table(const uint8_t *bytes, int64_t size) {
  uint32_t crc = 0xFFFFFFFFu;
  for (; size >= 8; size -= 8, bytes += 8) {
    uint64_t word = load64(bytes) ^ crc;
    crc = 0;
    for (int i = 0; i < 8; i++) crc ^= table[7 - i][(word >> (8 * i)) & 0xFF];
  }
  for (; size > 0; size--) crc = (crc >> 8) ^ table[0][(crc ^ *bytes++) & 0xFF];
  return ~crc;
}

#if X86
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(const uint8_t *bytes,
                                                                     int64_t size) {
  uint64_t crc = 0xFFFFFFFFu;
  for (; size >= 8; size -= 8, bytes += 8) crc = _mm_crc32_u64(crc, load64(bytes));
  uint32_t rest = (uint32_t)crc;
  for (; size > 0; size--) rest = _mm_crc32_u8(rest, *bytes++);
  return ~rest;
}
#endif

uint32_t replicax_crc(const uint8_t *bytes, int64_t size) {
#if X86
  if (__builtin_cpu_supports("sse4.2")) return crc_by_instruction(bytes, size);
#elif defined(__ARM_FEATURE_CRC32)
  uint32_t crc = 0xFFFFFFFFu;
  for (; size >= 8; size -= 8, bytes += 8) crc = __crc32cd(crc, load64(bytes));
  for (; size > 0; size--) crc = __crc32cb(crc, *bytes++);
  return ~crc;
#endif
  return replicax_crc_by_table(bytes, size);
}

static int matches(const uint8_t *bytes, int64_t size, const uint8_t *stored) {
  uint32_t crc = replicax_crc(bytes, size);
  return ((crc >> 15 | crc << 17) + 0xA282EAD8u) == load32(stored);
}

/* ---- _frames.py ------------------------------------------------------------------------------- */

/* Returns how many records there are from `*end` on; it stops when there is no more room for them.
 * `*end` moves behind the last one; `*problem` becomes 0, or 1 for a length and 2 for a content that
 * does not match its checksum. */
int64_t replicax_find_frames(const uint8_t *piece, int64_t size, int32_t verify, int64_t *starts,
                             int64_t *lengths, int64_t room, int64_t *end, int32_t *problem) {
  int64_t position = *end, count = 0;
  *problem = 0;
  while (size - position >= 12 && count < room) {
    const uint8_t *head = piece + position;
    if (verify && !matches(head, 8, head + 8)) {
      *problem = 1;
      break;
    }
    uint64_t length = load64(head);
    if (size - position < 16 || length > (uint64_t)(size - position - 16)) break;
    if (verify && !matches(head + 12, (int64_t)length, head + 12 + length)) {
      *problem = 2;
      break;
    }
    starts[count] = position + 12;
    lengths[count++] = (int64_t)length;
    position += 16 + (int64_t)length;
  }
  *end = position;
  return count;
}

/* ---- examples ---------------------------------------------------------------------------------
 *
 * An `Example` is regular if it is what all common writers write: features one after the other, each
 * a name and then one list. Any other form that protobuf allows, and anything malformed, is odd: the
 * functions say so, and protobuf reads the batch. */

/* Whether [start, start + length) lies in a buffer of `size` bytes. */
static int within(int64_t start, int64_t length, int64_t size) {
  return start >= 0 && length >= 0 && start <= size && length <= size - start;
}

/* The field with this tag at `position`: where its content ends, or -1 if it is odd. `position`
 * moves to where the content starts. Lengths of more than four bytes are odd. */
static int64_t field(const uint8_t *buffer, int64_t *position, int64_t stop, uint8_t tag) {
  int64_t at = *position;
  if (at + 2 > stop || buffer[at] != tag) return -1;
  int64_t length = buffer[at + 1];
  at += 2;
  if (length >= 0x80) {
    length &= 0x7F;
    for (int shift = 7;; shift += 7) {
      if (shift > 21 || at >= stop) return -1;
      uint8_t byte = buffer[at++];
      length |= (int64_t)(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
  }
  *position = at;
  return length <= stop - at ? at + length : -1;
}

/* Reads an integer of 1 to 10 bytes at `*position`, which moves behind it; returns 0 if odd. */
static int varint(const uint8_t *buffer, int64_t *position, int64_t stop, int64_t *out) {
  int64_t at = *position;
  uint64_t value = 0;
  uint8_t byte = 0x80;
  for (int shift = 0; byte >= 0x80; shift += 7) {
    if (at >= stop || shift > 63 || (shift == 63 && buffer[at] > 1)) return 0;
    byte = buffer[at++];
    value |= (uint64_t)(byte & 0x7F) << shift;
  }
  *position = at;
  *out = (int64_t)value;
  return 1;
}

/* The number of a name among the keys, of which `guess` is tried first; -1 if it is none of them. */
static int64_t number_of(const uint8_t *name, int64_t size, const uint8_t *const *keys,
                         const int64_t *key_sizes, int64_t key_count, int64_t guess) {
  for (int64_t i = 0; i < key_count; i++) {
    int64_t candidate = guess + i < key_count ? guess + i : guess + i - key_count;
    if (key_sizes[candidate] == size && memcmp(keys[candidate], name, (size_t)size) == 0)
      return candidate;
  }
  return -1;
}

/* Walks through one record and writes where its lists are; returns 0 if it is odd. */
static int walk(const uint8_t *buffer, int64_t start, int64_t stop, const uint8_t *const *keys,
                const int64_t *key_sizes, int64_t key_count, int8_t *kinds, int64_t *starts,
                int64_t *lengths, int64_t stride) {
  if (start == stop) return 1;
  int64_t position = start, guess = 0;
  if (field(buffer, &position, stop, 0x0A) != stop) return 0;
  while (position < stop) {
    int64_t entry = field(buffer, &position, stop, 0x0A);
    if (entry < 0) return 0;
    int64_t key = position;
    int64_t key_end = field(buffer, &key, entry, 0x0A);
    if (key_end < 0) return 0;
    int64_t value = key_end;
    if (field(buffer, &value, entry, 0x12) != entry) return 0;
    position = entry;
    int64_t number =
        number_of(buffer + key, key_end - key, keys, key_sizes, key_count, guess);
    if (number < 0) continue;
    guess = number + 1 < key_count ? number + 1 : 0; /* features often come in one order */
    int64_t place = number * stride;
    if (value == entry) {
      kinds[place] = 0;
      continue;
    }
    uint8_t tag = buffer[value];
    if (tag != 0x0A && tag != 0x12 && tag != 0x1A) return 0;
    if (field(buffer, &value, entry, tag) != entry) return 0;
    if (tag != 0x0A && value < entry && field(buffer, &value, entry, 0x0A) != entry) return 0;
    kinds[place] = (int8_t)(tag >> 3);
    starts[place] = value;
    lengths[place] = entry - value;
  }
  return 1;
}

/* Returns 0 if a record is odd. The last three are arrays of `key_count` rows and `count` columns;
 * `kinds` comes full of zeros. */
int32_t replicax_find_lists(const uint8_t *buffer, int64_t size, const int64_t *record_starts,
                            const int64_t *record_lengths, int64_t count,
                            const uint8_t *const *keys, const int64_t *key_sizes, int64_t key_count,
                            int8_t *kinds, int64_t *starts, int64_t *lengths) {
  for (int64_t i = 0; i < count; i++) {
    int64_t start = record_starts[i], length = record_lengths[i];
    if (!within(start, length, size) ||
        !walk(buffer, start, start + length, keys, key_sizes, key_count, kinds + i, starts + i,
              lengths + i, count))
      return 0;
  }
  return 1;
}

/* Reads the list of values at [at, stop), of the kind that its field has in a `Feature`: 1 for
 * strings, 2 for floats, 3 for integers. Of strings, `out` gets where they start, and `to_sizes`
 * numbers further how long they are. Returns how many values there are, or -1 if the list is odd;
 * writes as many as there is room for, and floats only if there is room for all. */
static int64_t read_list(const uint8_t *buffer, int64_t at, int64_t stop, int32_t kind, void *out,
                         int64_t to_sizes, int64_t room) {
  int64_t *numbers = (int64_t *)out, count = 0, value = 0;
  if (kind == 2) {
    count = (stop - at) / 4;
    if ((stop - at) % 4) return -1;
    if (count <= room) memcpy(out, buffer + at, (size_t)(stop - at));
    return count;
  }
  for (; at < stop; count++) {
    if (kind == 3) {
      if (!varint(buffer, &at, stop, &value)) return -1;
      if (count < room) numbers[count] = value;
    } else {
      int64_t end = field(buffer, &at, stop, 0x0A);
      if (end < 0) return -1;
      if (count < room) {
        numbers[count] = at;
        numbers[count + to_sizes] = end - at;
      }
      at = end;
    }
  }
  return count;
}

/* Reads all features of all records straight into their columns, if nothing is out of the ordinary:
 * every record is regular, and has every feature, of the kind and with the number of values asked
 * for. Otherwise it returns 0, and the columns mean nothing. The column of a feature of strings is
 * where they start, for all records, and then how long they are. */
int32_t replicax_read_rows(const uint8_t *buffer, int64_t size, const int64_t *record_starts,
                           const int64_t *record_lengths, int64_t count, const uint8_t *const *keys,
                           const int64_t *key_sizes, int64_t key_count, const int8_t *wanted_kinds,
                           const int64_t *value_counts, void *const *columns) {
  int8_t kinds[MOST_FEATURES];
  int64_t starts[MOST_FEATURES], lengths[MOST_FEATURES];
  if (key_count > MOST_FEATURES) return 0;
  for (int64_t i = 0; i < count; i++) {
    if (!within(record_starts[i], record_lengths[i], size)) return 0;
    memset(kinds, 0, (size_t)key_count);
    if (!walk(buffer, record_starts[i], record_starts[i] + record_lengths[i], keys, key_sizes,
              key_count, kinds, starts, lengths, 1))
      return 0;
    for (int64_t k = 0; k < key_count; k++) {
      if (kinds[k] != wanted_kinds[k]) return 0;
      int64_t values = value_counts[k], width = kinds[k] == 2 ? 4 : 8;
      uint8_t *row = (uint8_t *)columns[k] + i * values * width;
      if (read_list(buffer, starts[k], starts[k] + lengths[k], kinds[k], row, count * values,
                    values) != values)
        return 0;
    }
  }
  return 1;
}

/* Reads lists of one kind, one after the other, into `out`, which has room for so many values (of
 * strings, for the two numbers of each). Returns how many there are, or -1 if a list is odd or not
 * in the buffer. */
int64_t replicax_read_lists(const uint8_t *buffer, int64_t size, const int64_t *starts,
                            const int64_t *lengths, int64_t count, int32_t kind, void *out,
                            int64_t room, int64_t *counts) {
  int64_t total = 0, width = kind == 2 ? 4 : 8;
  for (int64_t i = 0; i < count; i++, total += counts[i - 1]) {
    if (!within(starts[i], lengths[i], size)) return -1;
    int64_t done = total < room ? total : room;
    counts[i] = read_list(buffer, starts[i], starts[i] + lengths[i], kind,
                          (uint8_t *)out + done * width, room, room - done);
    if (counts[i] < 0) return -1;
  }
  return total;
}

/* ---- sequence examples ------------------------------------------------------------------------
 *
 * A `SequenceExample` is regular if it is the features of the record, as in an `Example`, and then
 * its sequences, each a name and features one after the other, with one list each. */

/* Walks through one record; returns how long the part is that has the form of an `Example`, or -1
 * if the record is odd. `steps` becomes -1 where a sequence is missing. */
static int64_t walk_sequences(const uint8_t *buffer, int64_t start, int64_t stop,
                              const uint8_t *const *keys, const int64_t *key_sizes,
                              int64_t key_count, int64_t *starts, int64_t *lengths, int64_t *steps,
                              int64_t stride) {
  int64_t position = start, guess = 0;
  for (int64_t k = 0; k < key_count; k++) steps[k * stride] = -1;
  if (position < stop && buffer[position] == 0x0A) {
    int64_t end = field(buffer, &position, stop, 0x0A);
    if (end < 0) return -1;
    position = end;
  }
  int64_t context = position - start;
  if (position < stop && field(buffer, &position, stop, 0x12) != stop) return -1;
  while (position < stop) {
    int64_t entry = field(buffer, &position, stop, 0x0A);
    if (entry < 0) return -1;
    int64_t key = position;
    int64_t key_end = field(buffer, &key, entry, 0x0A);
    if (key_end < 0) return -1;
    int64_t value = key_end, count = 0;
    if (field(buffer, &value, entry, 0x12) != entry) return -1;
    position = entry;
    int64_t number =
        number_of(buffer + key, key_end - key, keys, key_sizes, key_count, guess);
    if (number < 0) continue;
    guess = number + 1 < key_count ? number + 1 : 0;
    for (int64_t at = value; at < entry; count++)
      if ((at = field(buffer, &at, entry, 0x0A)) < 0) return -1;
    starts[number * stride] = value;
    lengths[number * stride] = entry - value;
    steps[number * stride] = count;
  }
  return context;
}

/* Returns 0 if a record is odd. The last three are arrays of `key_count` rows and `count` columns:
 * where the sequences are, and of how many steps; `contexts` is how long the part of each record is
 * that comes before them. */
int32_t replicax_find_sequences(const uint8_t *buffer, int64_t size, const int64_t *record_starts,
                                const int64_t *record_lengths, int64_t count,
                                const uint8_t *const *keys, const int64_t *key_sizes,
                                int64_t key_count, int64_t *contexts, int64_t *starts,
                                int64_t *lengths, int64_t *steps) {
  for (int64_t i = 0; i < count; i++) {
    int64_t start = record_starts[i], length = record_lengths[i];
    if (!within(start, length, size)) return 0;
    contexts[i] = walk_sequences(buffer, start, start + length, keys, key_sizes, key_count,
                                 starts + i, lengths + i, steps + i, count);
    if (contexts[i] < 0) return 0;
  }
  return 1;
}

/* Reads the steps of sequences, whose values are of one kind, into `out`, which has room for so many
 * values (of strings, for the two numbers of each). `counts` has room for `step_room` steps. Returns
 * how many values there are, or -1 if a step is odd, of another kind, or not in the buffer. */
int64_t replicax_read_steps(const uint8_t *buffer, int64_t size, const int64_t *starts,
                            const int64_t *lengths, int64_t count, int32_t kind, void *out,
                            int64_t room, int64_t *counts, int64_t step_room) {
  int64_t total = 0, step = 0, width = kind == 2 ? 4 : 8;
  for (int64_t i = 0; i < count; i++) {
    if (!within(starts[i], lengths[i], size)) return -1;
    int64_t at = starts[i], stop = starts[i] + lengths[i];
    for (; at < stop; step++) {
      int64_t end = field(buffer, &at, stop, 0x0A), values = 0;
      if (end < 0 || step >= step_room) return -1;
      if (at < end) {
        uint8_t tag = buffer[at];
        if (tag != (kind << 3 | 2) || field(buffer, &at, end, tag) != end) return -1;
        if (kind != 1 && at < end && field(buffer, &at, end, 0x0A) != end) return -1;
        int64_t done = total < room ? total : room;
        values = read_list(buffer, at, end, kind, (uint8_t *)out + done * width, room, room - done);
        if (values < 0) return -1;
      }
      counts[step] = values;
      total += values;
      at = end;
    }
  }
  return step == step_room ? total : -1;
}
