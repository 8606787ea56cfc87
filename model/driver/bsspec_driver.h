/* A driver of the chip in C: brings it up, feeds prompts, decodes greedily.
 *
 * Plain C99, no allocation, no operating system. The user gives five functions that reach the
 * register window and the chip's memory. Constants come from bsspec.h (make header); what they
 * mean, and the order of things, from docs/chip.md and docs/integration.md.
 */
#ifndef BSSPEC_DRIVER_H
#define BSSPEC_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the host reaches the chip. Offsets are those of registers; addresses are the chip's. */
typedef struct {
    uint32_t (*read)(void *context, uint32_t offset);
    void (*write)(void *context, uint32_t offset, uint32_t value);
    void (*copy_in)(void *context, uint64_t address, const void *from, size_t bytes);
    void (*copy_out)(void *context, uint64_t address, void *to, size_t bytes);
    void (*wait)(void *context); /* until the interrupt; it may also return at once */
    void *context;
} bsspec_bus;

/* A model in memory, as its manifest (image.json) says. */
typedef struct {
    uint64_t base[11];          /* byte addresses of the regions */
    uint32_t lines[11];         /* their sizes in lines */
    uint32_t model_command[16]; /* MODEL */
    uint32_t jobs;              /* line of COMMANDS where jobs go */
    uint32_t layers;            /* commands of a step without norm and head */
    uint32_t capacity;          /* positions of a sequence */
    uint32_t rows;              /* T_M */
} bsspec_model;

/* What functions return: 0, a status of the chip, or one of these. */
enum { BSSPEC_NO_CHIP = -1, BSSPEC_BAD_ARGUMENT = -2 };

/* Checks the chip's ID and version, writes the regions, enables the interrupt. The image is in
 * memory already. */
int bsspec_begin(const bsspec_bus *bus, const bsspec_model *model);

/* Writes the lookup table: 16 words. */
void bsspec_table(const bsspec_bus *bus, const uint32_t words[16]);

/* Runs a job of commands of 16 words each, HALT included. The status is cleared; `line` gets the
 * line of the command that stopped the job, unless it is null. */
int bsspec_job(const bsspec_bus *bus, const bsspec_model *model, const uint32_t *commands,
               uint32_t count, uint32_t *line);

/* Feeds a prompt to sequence 0; its first new token is then in TOKENS behind it. */
int bsspec_prefill(const bsspec_bus *bus, const bsspec_model *model, const uint32_t *prompt,
                   uint32_t count);

/* Decodes sequence 0, of which `length` tokens are committed, until it has `limit` tokens or one of
 * the `end_ids`. `word` replaces the lookup table unless it is 0. `length` and `count` get the
 * committed tokens and all tokens. */
int bsspec_rounds(const bsspec_bus *bus, const bsspec_model *model, uint32_t *length,
                  uint32_t limit, uint32_t word, const uint32_t *end_ids, uint32_t ends,
                  uint32_t *count);

/* Reads tokens of sequence 0. */
void bsspec_tokens(const bsspec_bus *bus, const bsspec_model *model, uint32_t first,
                   uint32_t count, uint32_t *tokens);

#ifdef __cplusplus
}
#endif

#endif
