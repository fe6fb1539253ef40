/* odc-mlir: driver of the NPU in C99; see odc_npu.h. */
#include "odc_npu.h"

/* The only function of the C library. Declared here, as compilers for bare metal may have no <string.h>. */
void *memcpy(void *restrict to, const void *restrict from, size_t bytes);

/* ---- Bytes of the container ------------------------------------------------------------------------------------ */

#define HEADER_BYTES 64u
#define SECTION_BYTES 32u
#define TENSOR_BYTES 24u
#define MAX_SECTIONS 64u
#define MAX_TENSORS 256u
#define MAX_OFFSET (UINT32_C(1) << 28) /* an address has 28 bits of offset */
#define CONTAINER_MAJOR 1u
#define ISA_VERSION 1u
#define QUEUES 7u
#define NO_REGION 0xFFu
#define CONSTANTS_IN_SRAM 1u /* flag of the header */
#define OPTIONAL 1u          /* flag of a section */

enum kind { CODE = 1, CONSTANTS = 2, TENSORS = 3, MAP = 5, METADATA = 6, KINDS = 7 };

static const uint8_t type_bytes[] = {1, 1, 2, 4, 8, 1};

/* A range of bytes. `at` moves forward while they are read. */
struct span {
  const uint8_t *at;
  const uint8_t *end;
};

static size_t left(const struct span *span) { return (size_t)(span->end - span->at); }

/* Numbers are put together from bytes: the container may be at any address, the processor of any byte order. */
static uint32_t u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32(const uint8_t *p) { return u16(p) | u16(p + 2) << 16; }
static uint64_t u64(const uint8_t *p) { return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32; }

static int same_bytes(const void *a, const void *b, size_t bytes) {
  const uint8_t *p = a, *q = b;
  while (bytes > 0 && *p == *q) p++, q++, bytes--;
  return bytes == 0;
}

/* CRC-32 as in zlib, four bits at a time: a table of 64 bytes instead of 1024. */
static uint32_t crc32(uint32_t crc, const uint8_t *data, size_t bytes) {
  static const uint32_t table[16] = {
      0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
      0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
  crc = ~crc;
  while (bytes--) {
    crc ^= *data++;
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}

/* Return whether bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
static int is_utf8(struct span text) {
  while (text.at < text.end) {
    uint32_t lead = *text.at++;
    uint32_t more, low = 0x80, high = 0xBF; /* number of further bytes, limits of the first of them */
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    while (more--) {
      if (text.at == text.end || *text.at < low || *text.at > high) return 0;
      text.at++;
      low = 0x80, high = 0xBF;
    }
  }
  return 1;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

/* Metadata and map are JSON. A text is checked once as a whole; then values are found in it by skipping others. The
   last of several equal keys counts, as in Python's reader, and nothing but nesting needs memory. */

#define MAX_NESTING 32u      /* one bit of a word for each level */
#define MAX_DIGITS 4300u     /* of an integer: the limit of Python's reader */

static void skip_space(struct span *text) {
  while (text->at < text->end && (*text->at == ' ' || *text->at == '\t' || *text->at == '\n' || *text->at == '\r'))
    text->at++;
}

static int is_digit(uint32_t c) { return c >= '0' && c <= '9'; }

static int hex_value(uint32_t c) {
  if (is_digit(c)) return (int)(c - '0');
  if (c >= 'a' && c <= 'f') return (int)(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return (int)(c - 'A' + 10);
  return -1;
}

/* Take one character of a string: a byte, or the unit that an escape stands for. -1: the closing quotation mark, -2:
   an error. Bytes of longer characters are returned one by one, as callers look for ASCII only. */
static int32_t take_character(struct span *text) {
  static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  uint32_t c, i;
  int32_t unit = 0;
  if (text->at == text->end) return -2;
  c = *text->at++;
  if (c == '"') return -1;
  if (c < 0x20) return -2;
  if (c != '\\') return c < 0x80 ? (int32_t)c : INT32_MAX;
  if (text->at == text->end) return -2;
  c = *text->at++;
  for (i = 0; i < sizeof escapes - 1; i++)
    if (c == (uint8_t)escapes[i]) return meant[i];
  if (c != 'u' || left(text) < 4) return -2;
  for (i = 0; i < 4; i++) {
    int digit = hex_value(*text->at++);
    if (digit < 0) return -2;
    unit = unit * 16 + digit;
  }
  return unit;
}

static int skip_string(struct span *text) {
  int32_t c;
  if (text->at == text->end || *text->at != '"') return 0;
  text->at++;
  do c = take_character(text);
  while (c >= 0);
  return c == -1;
}

static int skip_word(struct span *text, const char *word) {
  size_t i;
  for (i = 0; word[i] != '\0'; i++)
    if (i >= left(text) || text->at[i] != (uint8_t)word[i]) return 0;
  text->at += i;
  return 1;
}

static size_t skip_digits(struct span *text) {
  const uint8_t *first = text->at;
  while (text->at < text->end && is_digit(*text->at)) text->at++;
  return (size_t)(text->at - first);
}

static int skip_number(struct span *text) {
  size_t digits;
  int is_integer = 1;
  if (text->at < text->end && *text->at == '-') text->at++;
  if (text->at < text->end && *text->at == '0') {
    text->at++;
    digits = 1;
  } else {
    digits = skip_digits(text);
  }
  if (digits == 0) return 0;
  if (text->at < text->end && *text->at == '.') {
    text->at++;
    if (skip_digits(text) == 0) return 0;
    is_integer = 0;
  }
  if (text->at < text->end && (*text->at == 'e' || *text->at == 'E')) {
    text->at++;
    if (text->at < text->end && (*text->at == '+' || *text->at == '-')) text->at++;
    if (skip_digits(text) == 0) return 0;
    is_integer = 0;
  }
  return !is_integer || digits <= MAX_DIGITS;
}

/* A value without parts. NaN and infinities are no JSON, but Python's reader takes them. */
static int skip_scalar(struct span *text) {
  static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
  size_t i;
  if (text->at < text->end && *text->at == '"') return skip_string(text);
  for (i = 0; i < sizeof words / sizeof *words; i++)
    if (skip_word(text, words[i])) return 1;
  return skip_number(text);
}

static int skip_key(struct span *text) {
  skip_space(text);
  if (!skip_string(text)) return 0;
  skip_space(text);
  return skip_word(text, ":");
}

/* Skip a value and the spaces before it. No recursion: `objects` has a bit for each open object or list. */
static int skip_value(struct span *text) {
  uint32_t objects = 0, depth = 0;
  for (;;) {
    skip_space(text);
    if (text->at == text->end) return 0;
    if (*text->at == '{' || *text->at == '[') {
      uint32_t is_object = *text->at++ == '{';
      if (depth++ == MAX_NESTING) return 0;
      objects = objects << 1 | is_object;
      skip_space(text);
      if (text->at == text->end) return 0;
      if (*text->at != (is_object ? '}' : ']')) { /* not empty: a member follows */
        if (is_object && !skip_key(text)) return 0;
        continue;
      }
    } else {
      if (!skip_scalar(text)) return 0;
      if (depth == 0) return 1;
    }
    /* Behind a member, or at the end of an empty object or list: close what ends here, or go on after a comma. */
    for (;;) {
      skip_space(text);
      if (text->at == text->end) return 0;
      if (*text->at == ',') {
        text->at++;
        if ((objects & 1) && !skip_key(text)) return 0;
        break;
      }
      if (*text->at++ != ((objects & 1) ? '}' : ']')) return 0;
      objects >>= 1;
      if (--depth == 0) return 1;
    }
  }
}

/* Check a whole text, and set `value` to the object in it. */
static int read_object(struct span text, struct span *value) {
  if (!is_utf8(text)) return 0;
  skip_space(&text);
  *value = text;
  if (!skip_value(&text)) return 0;
  value->end = text.at;
  skip_space(&text);
  return text.at == text.end && *value->at == '{';
}

/* The functions below read values of a checked text. A value is the span of its characters. */

static int is_a(struct span value, uint8_t first) { return *value.at == first; }

/* Return the parts of an object or list, for next_part. */
static struct span parts_of(struct span value) {
  value.at++;
  return value;
}

/* Take the next part of an object (with its `key`) or of a list (`key` NULL); return 0 after the last one. */
static int next_part(struct span *parts, struct span *key, struct span *value) {
  skip_space(parts);
  if (*parts->at == ',') parts->at++;
  skip_space(parts);
  if (*parts->at == '}' || *parts->at == ']') return 0;
  if (key != NULL) {
    key->at = parts->at;
    (void)skip_string(parts);
    key->end = parts->at;
    skip_space(parts);
    parts->at++; /* the colon */
    skip_space(parts);
  }
  value->at = parts->at;
  (void)skip_value(parts);
  value->end = parts->at;
  return 1;
}

static int equals(struct span string, const char *ascii) {
  if (!is_a(string, '"')) return 0;
  string.at++;
  for (; *ascii != '\0'; ascii++)
    if (take_character(&string) != (int32_t)*ascii) return 0;
  return take_character(&string) == -1;
}

static int find(struct span object, const char *wanted, struct span *found) {
  struct span parts = parts_of(object), key, value;
  int is_there = 0;
  while (next_part(&parts, &key, &value))
    if (equals(key, wanted)) *found = value, is_there = 1;
  return is_there;
}

static int is_integer(struct span value) {
  if (is_a(value, '-')) value.at++;
  return skip_digits(&value) > 0 && value.at == value.end;
}

/* Read an integer from 0 to 2^63 - 1. */
static int read_natural(struct span value, uint64_t *number) {
  int is_negative = is_a(value, '-');
  if (!is_integer(value)) return 0;
  if (is_negative) value.at++;
  for (*number = 0; value.at < value.end; value.at++) {
    uint64_t digit = (uint64_t)(*value.at - '0');
    /* 2^63 - 1 ends in 7; constants, so that no division of 64 bits is needed */
    if (*number > INT64_MAX / 10 || (*number == INT64_MAX / 10 && digit > 7)) return 0;
    *number = *number * 10 + digit;
  }
  return !is_negative || *number == 0;
}

/* Read a list of two natural numbers. */
static int read_pair(struct span value, uint64_t pair[2]) {
  struct span parts, part;
  int count = 0;
  if (!is_a(value, '[')) return 0;
  parts = parts_of(value);
  while (next_part(&parts, NULL, &part)) {
    if (count == 2 || !read_natural(part, &pair[count])) return 0;
    count++;
  }
  return count == 2;
}

/* ---- Sections --------------------------------------------------------------------------------------------------- */

struct section {
  uint64_t offset;
  uint64_t bytes;
  uint32_t kind;
  uint32_t flags;
  uint32_t crc;
};

static enum odc_npu_status read_section(const uint8_t *row, struct section *section) {
  uint32_t region = row[2], log2 = row[3];
  section->kind = u16(row);
  section->flags = u32(row + 4);
  section->offset = u64(row + 8);
  section->bytes = u64(row + 16);
  section->crc = u32(row + 24);
  if (u32(row + 28) != 0 || section->flags > OPTIONAL || log2 > 7) return ODC_NPU_E_SECTIONS;
  if (section->offset & ((UINT64_C(1) << log2) - 1)) return ODC_NPU_E_SECTIONS;
  if (region != (section->kind == CONSTANTS ? (uint32_t)ODC_NPU_CONSTANTS : NO_REGION)) return ODC_NPU_E_SECTIONS;
  return ODC_NPU_OK;
}

/* Find the sections of known kinds. They are visited in order of their offsets, so that together with the padding
   between them they account for every byte of the file. */
static enum odc_npu_status read_sections(const uint8_t *data, size_t bytes, uint32_t count, struct span found[KINDS]) {
  uint64_t end = HEADER_BYTES + SECTION_BYTES * count;
  uint64_t visited = 0; /* a bit for each row of the table */
  uint32_t step, i;
  for (i = 0; i < KINDS; i++) found[i].at = found[i].end = NULL;
  for (step = 0; step < count; step++) {
    struct section next = {0, 0, 0, 0, 0}, other;
    uint32_t index = count;
    for (i = 0; i < count; i++) {
      enum odc_npu_status status = read_section(data + HEADER_BYTES + SECTION_BYTES * i, &other);
      if (status != ODC_NPU_OK) return status;
      if (visited >> i & 1) continue;
      /* Empty sections may share their offset with the next one, which comes after them. */
      if (index == count || other.offset < next.offset || (other.offset == next.offset && other.bytes < next.bytes))
        next = other, index = i;
    }
    visited |= UINT64_C(1) << index;
    if (next.offset < end || next.offset > bytes || next.bytes > bytes - next.offset) return ODC_NPU_E_SECTIONS;
    for (; end < next.offset; end++)
      if (data[end] != 0) return ODC_NPU_E_CHECKSUM;
    if (crc32(0, data + next.offset, (size_t)next.bytes) != next.crc) return ODC_NPU_E_CHECKSUM;
    end = next.offset + next.bytes;
    if (next.kind == CODE || next.kind == CONSTANTS || next.kind == TENSORS || next.kind == MAP ||
        next.kind == METADATA) {
      if (found[next.kind].at != NULL) return ODC_NPU_E_SECTIONS;
      found[next.kind].at = data + next.offset;
      found[next.kind].end = data + end;
    } else if (!(next.flags & OPTIONAL)) {
      return ODC_NPU_E_SECTIONS; /* a section of a newer version that readers must know */
    }
  }
  if (end != bytes) return ODC_NPU_E_SECTIONS;
  if (found[CODE].at == NULL || found[TENSORS].at == NULL || found[METADATA].at == NULL) return ODC_NPU_E_SECTIONS;
  return ODC_NPU_OK;
}

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

/* Take the next record of the section; return 0 if it is malformed. Ranges are for the caller to check. */
static int take_tensor(struct span *records, struct odc_npu_tensor *tensor) {
  const uint8_t *p = records->at;
  uint64_t bits, bytes;
  uint32_t i;
  if (left(records) < TENSOR_BYTES) return 0;
  tensor->type = p[0];
  tensor->rank = p[1];
  tensor->region = p[2];
  tensor->offset = u32(p + 4);
  bits = u64(p + 8);
  tensor->zero_point = (int32_t)u32(p + 16);
  tensor->name_bytes = u16(p + 20);
  if (tensor->type >= sizeof type_bytes || tensor->rank > ODC_NPU_MAX_RANK || u16(p + 22) != 0) return 0;
  records->at += TENSOR_BYTES;
  if (left(records) < 4u * tensor->rank + tensor->name_bytes) return 0;
  bytes = type_bytes[tensor->type];
  for (i = 0; i < ODC_NPU_MAX_RANK; i++) tensor->shape[i] = 0;
  for (i = 0; i < tensor->rank; i++, records->at += 4) {
    uint32_t extent = tensor->shape[i] = u32(records->at);
    if (extent == 0 || extent >= MAX_OFFSET) return 0;
    bytes *= extent; /* at most 2^28 * 2^28 before the next line */
    if (bytes > MAX_OFFSET) return 0;
  }
  tensor->bytes = (uint32_t)bytes;
  tensor->name = records->at;
  records->at += tensor->name_bytes;
  /* A scale is 0, or finite and positive: the sign bit is clear and the exponent is not the largest. */
  if (bits << 1 == 0) bits = 0;
  if (bits >= UINT64_C(0x7FF) << 52) return 0;
  memcpy(&tensor->scale, &bits, sizeof bits);
  return is_utf8((struct span){tensor->name, records->at});
}

/* Find a tensor of a checked section, or of the checked part of it. */
static void find_tensor(struct span records, uint32_t index, struct odc_npu_tensor *tensor) {
  do (void)take_tensor(&records, tensor);
  while (index-- > 0);
}

static int overlap(const struct odc_npu_tensor *a, const struct odc_npu_tensor *b) {
  return a->region == b->region && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static enum odc_npu_status read_tensors(struct span section, struct odc_npu_program *program) {
  struct span records;
  uint32_t i, j;
  if (left(&section) < 4) return ODC_NPU_E_TENSORS;
  program->input_count = u16(section.at);
  program->output_count = u16(section.at + 2);
  if (program->input_count > MAX_TENSORS || program->output_count > MAX_TENSORS) return ODC_NPU_E_TENSORS;
  section.at += 4;
  program->tensors = section.at;
  program->tensors_end = section.end;
  records = section;
  for (i = 0; i < program->input_count + program->output_count; i++) {
    int is_input = i < program->input_count;
    uint32_t own = is_input ? ODC_NPU_INPUTS : ODC_NPU_OUTPUTS, end;
    struct odc_npu_tensor tensor, other;
    if (!take_tensor(&records, &tensor)) return ODC_NPU_E_TENSORS;
    if (tensor.offset > MAX_OFFSET - tensor.bytes) return ODC_NPU_E_TENSORS;
    end = tensor.offset + tensor.bytes;
    if (tensor.region == ODC_NPU_ARENA) {
      if (end > program->region_bytes[ODC_NPU_ARENA]) return ODC_NPU_E_TENSORS;
    } else if (tensor.region == own) {
      if (end > program->region_bytes[own]) program->region_bytes[own] = end;
    } else {
      return ODC_NPU_E_TENSORS;
    }
    for (j = 0; is_input && j < i; j++) {
      find_tensor(section, j, &other);
      if (overlap(&tensor, &other)) return ODC_NPU_E_TENSORS;
    }
  }
  return records.at == records.end ? ODC_NPU_OK : ODC_NPU_E_TENSORS;
}

static enum odc_npu_status get_tensor(const struct odc_npu_program *program, uint32_t index, uint32_t first,
                                      uint32_t count, struct odc_npu_tensor *tensor) {
  if (index >= count) return ODC_NPU_E_ARGUMENT;
  find_tensor((struct span){program->tensors, program->tensors_end}, first + index, tensor);
  return ODC_NPU_OK;
}

enum odc_npu_status odc_npu_input(const struct odc_npu_program *program, uint32_t index,
                                  struct odc_npu_tensor *tensor) {
  return get_tensor(program, index, 0, program->input_count, tensor);
}

enum odc_npu_status odc_npu_output(const struct odc_npu_program *program, uint32_t index,
                                   struct odc_npu_tensor *tensor) {
  return get_tensor(program, index, program->input_count, program->output_count, tensor);
}

/* ---- Metadata and map ------------------------------------------------------------------------------------------- */

/* Return the short form of a digest, given by 64 hexadecimal digits. */
static int read_digest(struct span string, uint32_t *hardware) {
  uint8_t digest[32];
  size_t i;
  if (!is_a(string, '"')) return 0;
  string.at++;
  for (i = 0; i < 2 * sizeof digest; i++) {
    int32_t c = take_character(&string);
    int digit = c < 0 ? -1 : hex_value((uint32_t)c);
    if (digit < 0) return 0;
    digest[i / 2] = (uint8_t)((i & 1 ? digest[i / 2] << 4 : 0) | digit);
  }
  *hardware = crc32(0, digest, sizeof digest);
  return take_character(&string) == -1;
}

static int is_list_of_names(struct span list) {
  struct span lists, names, item;
  if (!is_a(list, '[')) return 0;
  for (lists = parts_of(list); next_part(&lists, NULL, &item);) {
    if (!is_a(item, '[')) return 0;
    for (names = parts_of(item); next_part(&names, NULL, &item);)
      if (!is_a(item, '"')) return 0;
  }
  return 1;
}

static enum odc_npu_status check_states(const struct odc_npu_program *program, struct span list) {
  struct span parts, item;
  if (!is_a(list, '[')) return ODC_NPU_E_STATES;
  for (parts = parts_of(list); next_part(&parts, NULL, &item);) {
    struct odc_npu_tensor kept, new_value;
    uint64_t pair[2];
    if (!read_pair(item, pair)) return ODC_NPU_E_STATES;
    if (pair[0] >= program->input_count || pair[1] >= program->output_count) return ODC_NPU_E_STATES;
    (void)odc_npu_input(program, (uint32_t)pair[0], &kept);
    (void)odc_npu_output(program, (uint32_t)pair[1], &new_value);
    if (kept.region != ODC_NPU_ARENA || new_value.region != ODC_NPU_ARENA || kept.offset != new_value.offset ||
        kept.type != new_value.type || kept.rank != new_value.rank ||
        !same_bytes(kept.shape, new_value.shape, sizeof kept.shape))
      return ODC_NPU_E_STATES;
  }
  return ODC_NPU_OK;
}

static enum odc_npu_status check_metadata(const struct odc_npu_program *program, struct span text, int is_in_sram) {
  struct span metadata, item;
  uint32_t hardware;
  if (!read_object(text, &metadata)) return ODC_NPU_E_METADATA;
  if (!find(metadata, "target", &item) || !is_a(item, '"')) return ODC_NPU_E_METADATA;
  if (!find(metadata, "target_version", &item) || !is_integer(item)) return ODC_NPU_E_METADATA;
  if (!find(metadata, "memory", &item) || !equals(item, is_in_sram ? "sram" : "flash")) return ODC_NPU_E_METADATA;
  if (!find(metadata, "target_digest", &item) || !read_digest(item, &hardware)) return ODC_NPU_E_METADATA;
  if (hardware != program->hardware) return ODC_NPU_E_METADATA;
  if (find(metadata, "results", &item) && !is_list_of_names(item)) return ODC_NPU_E_METADATA;
  return find(metadata, "states", &item) ? check_states(program, item) : ODC_NPU_OK;
}

/* Check an operator of the map: an object with these five keys and no other. */
static int is_operator(struct span object) {
  static const char *const keys[] = {"name", "kind", "macs", "recomputed_macs", "ranges"};
  struct span parts, key, item;
  uint64_t number[2];
  size_t i;
  if (!is_a(object, '{')) return 0;
  for (parts = parts_of(object); next_part(&parts, &key, &item);) {
    for (i = 0; i < 5 && !equals(key, keys[i]); i++) {
    }
    if (i == 5) return 0;
  }
  for (i = 0; i < 5; i++) {
    if (!find(object, keys[i], &item)) return 0;
    if (i < 2 && !is_a(item, '"')) return 0;
    if ((i == 2 || i == 3) && !read_natural(item, number)) return 0;
  }
  if (!is_a(item, '[')) return 0; /* the ranges: first instruction and number of instructions */
  for (parts = parts_of(item); next_part(&parts, NULL, &item);)
    if (!read_pair(item, number)) return 0;
  return 1;
}

static enum odc_npu_status check_map(struct span text) {
  struct span map, parts, key, item;
  if (!read_object(text, &map)) return ODC_NPU_E_MAP;
  for (parts = parts_of(map); next_part(&parts, &key, &item);)
    if (!equals(key, "operators")) return ODC_NPU_E_MAP;
  if (!find(map, "operators", &item) || !is_a(item, '[')) return ODC_NPU_E_MAP;
  for (parts = parts_of(item); next_part(&parts, NULL, &item);)
    if (!is_operator(item)) return ODC_NPU_E_MAP;
  return ODC_NPU_OK;
}

/* ---- The container ---------------------------------------------------------------------------------------------- */

enum odc_npu_status odc_npu_parse(struct odc_npu_program *program, const void *image, size_t bytes) {
  static const struct odc_npu_program empty; /* all zero */
  const uint8_t *data = image;
  struct span found[KINDS];
  enum odc_npu_status status;
  uint32_t flags, count, crc;
  *program = empty;
  if (bytes < HEADER_BYTES) return ODC_NPU_E_SIZE;
  if (!same_bytes(data, "ONPU", 4)) return ODC_NPU_E_MAGIC;
  if (data[4] != CONTAINER_MAJOR || u16(data + 18) != ISA_VERSION) return ODC_NPU_E_VERSION;
  if (u32(data + 20) != bytes) return ODC_NPU_E_SIZE;
  count = u16(data + 16);
  if (u16(data + 6) != HEADER_BYTES || count == 0 || count > MAX_SECTIONS) return ODC_NPU_E_HEADER;
  if (SECTION_BYTES * count > bytes - HEADER_BYTES) return ODC_NPU_E_HEADER;
  crc = crc32(crc32(0, data, HEADER_BYTES - 4), data + HEADER_BYTES, SECTION_BYTES * count);
  if (crc != u32(data + 60)) return ODC_NPU_E_CHECKSUM;
  flags = u32(data + 12);
  if (u16(data + 28) != ODC_NPU_ALIGNMENT || data[30] != ODC_NPU_REGIONS || data[31] != QUEUES || u64(data + 52) != 0 ||
      flags > CONSTANTS_IN_SRAM || u32(data + 24) > MAX_OFFSET)
    return ODC_NPU_E_HEADER;
  status = read_sections(data, bytes, count, found);
  if (status != ODC_NPU_OK) return status;
  program->hardware = u32(data + 8);
  program->code = found[CODE].at;
  program->code_bytes = (uint32_t)left(&found[CODE]);
  program->constants = found[CONSTANTS].at;
  if (found[CONSTANTS].at != NULL) program->region_bytes[ODC_NPU_CONSTANTS] = (uint32_t)left(&found[CONSTANTS]);
  program->region_bytes[ODC_NPU_ARENA] = u32(data + 24);
  status = read_tensors(found[TENSORS], program);
  if (status != ODC_NPU_OK) return status;
  status = check_metadata(program, found[METADATA], (flags & CONSTANTS_IN_SRAM) != 0);
  if (status != ODC_NPU_OK) return status;
  return found[MAP].at != NULL ? check_map(found[MAP]) : ODC_NPU_OK;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes) { return (bytes + ODC_NPU_ALIGNMENT - 1) / ODC_NPU_ALIGNMENT * ODC_NPU_ALIGNMENT; }

size_t odc_npu_memory_bytes(const struct odc_npu_program *program) {
  size_t bytes = 0;
  uint32_t region;
  for (region = ODC_NPU_ARENA; region < ODC_NPU_REGIONS; region++) bytes += aligned(program->region_bytes[region]);
  return bytes;
}

enum odc_npu_status odc_npu_bind(struct odc_npu_program *program, void *memory, size_t bytes) {
  uint8_t *place = memory;
  uint32_t region;
  if (bytes < odc_npu_memory_bytes(program)) return ODC_NPU_E_MEMORY;
  for (region = ODC_NPU_ARENA; region < ODC_NPU_REGIONS; region++) {
    program->memory[region] = place;
    place += aligned(program->region_bytes[region]);
  }
  return ODC_NPU_OK;
}

void *odc_npu_data(const struct odc_npu_program *program, const struct odc_npu_tensor *tensor) {
  return program->memory[tensor->region] + tensor->offset;
}

/* ---- The device ------------------------------------------------------------------------------------------------- */

static uint32_t read_register(const struct odc_npu_device *device, uint32_t offset) {
  return device->registers[offset / 4];
}

static void write_register(const struct odc_npu_device *device, uint32_t offset, uint32_t value) {
  device->registers[offset / 4] = value;
}

static void synchronise(const struct odc_npu_device *device) {
  if (device->synchronise != NULL) device->synchronise(device->context);
}

/* Write the address of memory, as the NPU sees it, to a pair of registers; return 0 if it is not aligned. */
static int write_address(const struct odc_npu_device *device, uint32_t offset, const void *memory) {
  uint64_t address = (uint64_t)((uintptr_t)memory - device->origin);
  write_register(device, offset, (uint32_t)address);
  write_register(device, offset + 4, (uint32_t)(address >> 32));
  return address % ODC_NPU_ALIGNMENT == 0;
}

enum odc_npu_status odc_npu_open(struct odc_npu_device *device) {
  if (read_register(device, ODC_NPU_ID) != UINT32_C(0x55504E4F)) return ODC_NPU_E_DEVICE; /* "ONPU" */
  if (read_register(device, ODC_NPU_VERSION) != (UINT32_C(1) << 16 | ISA_VERSION)) return ODC_NPU_E_DEVICE;
  if (read_register(device, ODC_NPU_STATUS) & 1) return ODC_NPU_E_BUSY;
  device->job = read_register(device, ODC_NPU_DONE);
  write_register(device, ODC_NPU_CONTROL, device->job); /* ends a request that a driver before this one left */
  odc_npu_clear_interrupt(device);
  return ODC_NPU_OK;
}

enum odc_npu_status odc_npu_start(struct odc_npu_device *device, const struct odc_npu_program *program) {
  uint32_t region;
  int is_aligned;
  if (read_register(device, ODC_NPU_DONE) != device->job) return ODC_NPU_E_BUSY;
  if (read_register(device, ODC_NPU_HARDWARE) != program->hardware) return ODC_NPU_E_HARDWARE;
  is_aligned = write_address(device, ODC_NPU_PROGRAM, program->code);
  write_register(device, ODC_NPU_PROGRAM_BYTES, program->code_bytes);
  for (region = 0; region < ODC_NPU_REGIONS; region++) {
    uint32_t place = ODC_NPU_REGION_STEP * region;
    const uint8_t *memory = region == ODC_NPU_CONSTANTS ? program->constants : program->memory[region];
    uint32_t bytes = program->region_bytes[region];
    if (bytes > 0 && memory == NULL) return ODC_NPU_E_MEMORY; /* odc_npu_bind was not called */
    if (bytes > 0) is_aligned &= write_address(device, ODC_NPU_REGION + place, memory);
    write_register(device, ODC_NPU_REGION_BYTES + place, bytes);
  }
  if (!is_aligned) return ODC_NPU_E_ALIGNMENT;
  write_register(device, ODC_NPU_IRQ_ENABLE, device->use_interrupt ? 1 : 0);
  synchronise(device); /* inputs and registers are written before the job starts */
  device->job++;
  write_register(device, ODC_NPU_CONTROL, device->job);
  return ODC_NPU_OK;
}

enum odc_npu_status odc_npu_poll(struct odc_npu_device *device) {
  if (read_register(device, ODC_NPU_DONE) != device->job) return ODC_NPU_E_BUSY;
  synchronise(device); /* results are read after the job has ended */
  return read_register(device, ODC_NPU_STATUS) & 2 ? ODC_NPU_E_FAILED : ODC_NPU_OK;
}

enum odc_npu_status odc_npu_wait(struct odc_npu_device *device) {
  enum odc_npu_status status;
  while ((status = odc_npu_poll(device)) == ODC_NPU_E_BUSY)
    if (device->wait != NULL && device->wait(device->context) != 0) return ODC_NPU_E_WAIT;
  odc_npu_clear_interrupt(device);
  return status;
}

void odc_npu_clear_interrupt(struct odc_npu_device *device) {
  write_register(device, ODC_NPU_IRQ_CLEAR, read_register(device, ODC_NPU_DONE));
}

enum odc_npu_status odc_npu_run(struct odc_npu_device *device, const struct odc_npu_program *program,
                                const void *const *inputs, void *const *outputs) {
  struct odc_npu_tensor tensor;
  enum odc_npu_status status;
  uint32_t i;
  if (odc_npu_poll(device) == ODC_NPU_E_BUSY) return ODC_NPU_E_BUSY; /* it may read the inputs of this program */
  for (i = 0; odc_npu_input(program, i, &tensor) == ODC_NPU_OK; i++) {
    if (program->memory[tensor.region] == NULL) return ODC_NPU_E_MEMORY;
    memcpy(odc_npu_data(program, &tensor), inputs[i], tensor.bytes);
  }
  status = odc_npu_start(device, program);
  if (status != ODC_NPU_OK) return status;
  status = odc_npu_wait(device);
  if (status != ODC_NPU_OK) return status;
  for (i = 0; odc_npu_output(program, i, &tensor) == ODC_NPU_OK; i++)
    memcpy(outputs[i], odc_npu_data(program, &tensor), tensor.bytes);
  return ODC_NPU_OK;
}

uint64_t odc_npu_cycles(const struct odc_npu_device *device) {
  return (uint64_t)read_register(device, ODC_NPU_CYCLES + 4) << 32 | read_register(device, ODC_NPU_CYCLES);
}

uint32_t odc_npu_error(const struct odc_npu_device *device) { return read_register(device, ODC_NPU_ERROR); }

uint32_t odc_npu_halt(const struct odc_npu_device *device) { return read_register(device, ODC_NPU_HALT); }
