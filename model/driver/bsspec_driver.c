#include "bsspec_driver.h"

#include "bsspec.h"

#define WORDS BSSPEC_COMMAND_WORDS
/* Commands of a job that feeds a part of a prompt: MODEL, ROWS, CALL, CALL, CALL, COMMIT, HALT. */
#define PREFILL 7u

static void zero(uint32_t *command, uint32_t opcode)
{
    for (uint32_t i = 0; i < WORDS; i++)
        command[i] = 0;
    command[0] = opcode;
}

static void call(uint32_t *command, uint32_t list, uint32_t count)
{
    zero(command, BSSPEC_OP_CALL);
    command[BSSPEC_CMD_CALL_LIST_WORD] = list;
    command[BSSPEC_CMD_CALL_COUNT_WORD] = count;
}

int bsspec_begin(const bsspec_bus *bus, const bsspec_model *model)
{
    if (bus->read(bus->context, BSSPEC_REG_ID) != BSSPEC_ID ||
        bus->read(bus->context, BSSPEC_REG_VERSION) != BSSPEC_VERSION)
        return BSSPEC_NO_CHIP;
    uint32_t config = bus->read(bus->context, BSSPEC_REG_CONFIG);
    if (BSSPEC_GET(BSSPEC_REG_CONFIG_T_M, config) != model->rows)
        return BSSPEC_BAD_ARGUMENT;
    for (uint32_t i = 0; i <= BSSPEC_REGION_TRACE; i++) {
        bus->write(bus->context, BSSPEC_REG_BASE + 8 * i, (uint32_t)model->base[i]);
        bus->write(bus->context, BSSPEC_REG_BASE + 8 * i + 4, (uint32_t)(model->base[i] >> 32));
        bus->write(bus->context, BSSPEC_REG_SIZE + 4 * i, model->lines[i]);
    }
    bus->write(bus->context, BSSPEC_REG_IRQ_ENABLE, 1);
    return 0;
}

void bsspec_table(const bsspec_bus *bus, const uint32_t words[16])
{
    for (uint32_t i = 0; i < 16; i++)
        bus->write(bus->context, BSSPEC_REG_PLT + 4 * i, words[i]);
}

int bsspec_job(const bsspec_bus *bus, const bsspec_model *model, const uint32_t *commands,
               uint32_t count, uint32_t *line)
{
    uint64_t place = model->base[BSSPEC_REGION_COMMANDS] + (uint64_t)model->jobs * BSSPEC_LINE_BYTES;
    bus->copy_in(bus->context, place, commands, (size_t)count * BSSPEC_LINE_BYTES);
    bus->write(bus->context, BSSPEC_REG_FIRST_COMMAND, model->jobs);
    bus->write(bus->context, BSSPEC_REG_CONTROL, BSSPEC_REG_CONTROL_START_MASK);
    uint32_t word;
    do {
        bus->wait(bus->context);
        word = bus->read(bus->context, BSSPEC_REG_STATUS);
    } while (word & BSSPEC_REG_STATUS_BUSY_MASK);
    bus->write(bus->context, BSSPEC_REG_IRQ_PENDING, 1);
    if (line)
        *line = bus->read(bus->context, BSSPEC_REG_COMMAND_INDEX);
    uint32_t status = BSSPEC_GET(BSSPEC_REG_STATUS_STATUS, word);
    if (status != BSSPEC_STATUS_OK)
        bus->write(bus->context, BSSPEC_REG_CONTROL, BSSPEC_REG_CONTROL_CLEAR_MASK);
    return (int)status;
}

static uint64_t token_place(const bsspec_model *model, uint32_t position)
{
    return model->base[BSSPEC_REGION_TOKENS] + 4 * (uint64_t)position;
}

int bsspec_prefill(const bsspec_bus *bus, const bsspec_model *model, const uint32_t *prompt,
                   uint32_t count)
{
    if (count == 0 || count >= model->capacity)
        return BSSPEC_BAD_ARGUMENT;
    bus->copy_in(bus->context, token_place(model, 0), prompt, 4 * (size_t)count);
    for (uint32_t start = 0; start < count; start += model->rows) {
        uint32_t rows = count - start < model->rows ? count - start : model->rows;
        uint32_t job[PREFILL * WORDS];
        uint32_t *next = job;
        for (uint32_t i = 0; i < WORDS; i++)
            *next++ = model->model_command[i];
        zero(next, BSSPEC_OP_ROWS);
        next[BSSPEC_CMD_ROWS_SEGMENTS_WORD] |= BSSPEC_PUT(BSSPEC_CMD_ROWS_SEGMENTS, 1);
        next[BSSPEC_CMD_ROWS_COUNT_0_WORD] |= BSSPEC_PUT(BSSPEC_CMD_ROWS_COUNT_0, rows);
        next[BSSPEC_CMD_ROWS_START_0_WORD] = start;
        next += WORDS;
        call(next, 0, model->layers);
        next += WORDS;
        if (start + rows == count) {
            call(next, model->layers, 1); /* the last norm */
            next += WORDS;
            call(next, model->layers + 2, 1); /* argmax behind the last row */
            next += WORDS;
            zero(next, BSSPEC_OP_COMMIT);
            next[BSSPEC_CMD_COMMIT_APPEND_WORD] |= BSSPEC_PUT(BSSPEC_CMD_COMMIT_APPEND, 1);
            next += WORDS;
        }
        zero(next, BSSPEC_OP_HALT);
        next += WORDS;
        int status = bsspec_job(bus, model, job, (uint32_t)(next - job) / WORDS, NULL);
        if (status != 0)
            return status;
    }
    return 0;
}

int bsspec_rounds(const bsspec_bus *bus, const bsspec_model *model, uint32_t *length,
                  uint32_t limit, uint32_t word, const uint32_t *end_ids, uint32_t ends,
                  uint32_t *count)
{
    if (ends > BSSPEC_END_IDS || limit > model->capacity)
        return BSSPEC_BAD_ARGUMENT;
    uint32_t job[4 * WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        job[i] = model->model_command[i];
    uint32_t *sequence = job + WORDS, *round = sequence + WORDS;
    zero(sequence, BSSPEC_OP_SEQUENCE);
    sequence[BSSPEC_CMD_SEQUENCE_LIVE_WORD] |= BSSPEC_PUT(BSSPEC_CMD_SEQUENCE_LIVE, 1);
    sequence[BSSPEC_CMD_SEQUENCE_LENGTH_WORD] = *length;
    sequence[BSSPEC_CMD_SEQUENCE_LIMIT_WORD] = limit;
    zero(round, BSSPEC_OP_ROUND);
    round[BSSPEC_CMD_ROUND_END_IDS_WORD] |= BSSPEC_PUT(BSSPEC_CMD_ROUND_END_IDS, ends);
    round[BSSPEC_CMD_ROUND_COUNT_WORD] = model->layers + 2;
    round[BSSPEC_CMD_ROUND_PRECISION_WORD] = word;
    for (uint32_t i = 0; i < ends; i++)
        round[BSSPEC_CMD_ROUND_END_ID_0_WORD + i] = end_ids[i];
    zero(round + WORDS, BSSPEC_OP_HALT);
    int status = bsspec_job(bus, model, job, 4, NULL);
    *length = bus->read(bus->context, BSSPEC_REG_LENGTH);
    *count = bus->read(bus->context, BSSPEC_REG_COUNT);
    return status;
}

void bsspec_tokens(const bsspec_bus *bus, const bsspec_model *model, uint32_t first,
                   uint32_t count, uint32_t *tokens)
{
    bus->copy_out(bus->context, token_place(model, first), tokens, 4 * (size_t)count);
}
