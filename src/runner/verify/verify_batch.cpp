#include "tessera/runner/verify/verify_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "tessera/runner/memory/group_pages.h"

namespace tessera {
namespace {

// The numbers of new tokens (query) and of cached tokens (prefix) of each request in a batch.
struct Lengths {
  std::vector<std::int32_t> query;
  std::vector<std::int32_t> prefix;
};

// Divides `tokens` tokens into requests of different lengths, of at most `context` tokens each.
Lengths prefill_lengths(std::int64_t tokens, std::int64_t context, std::int64_t max_requests) {
  Lengths lengths;
  const std::int64_t share =
      std::max<std::int64_t>((tokens + 2) / 3, (4 * tokens + 3 * max_requests - 1) / (3 * max_requests));
  for (std::int64_t i = 0, left = tokens; left > 0; ++i) {
    const std::int64_t query =
        std::min({left, std::max<std::int64_t>(share - (i % 2 == 0 ? share / 4 : 0), 1), context});
    lengths.query.push_back(static_cast<std::int32_t>(query));
    lengths.prefix.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(context - query, 5 + 11 * (i % 4))));
    left -= query;
  }
  return lengths;
}

// Removes requests of a single row by joining each of them with the request before or after it. If the joined request
// would have more than `context` rows, moves one row from the earlier request to the later one instead. Precondition:
// can_have_several_rows_each().
Lengths several_rows_each(const Lengths& lengths, std::int32_t context) {
  Lengths merged;
  for (std::size_t b = 0; b < lengths.query.size(); ++b) {
    const std::int32_t rows = lengths.query[b];
    const bool lonely = !merged.query.empty() && (rows == 1 || merged.query.back() == 1);
    if (lonely && merged.query.back() + rows <= context) {
      merged.query.back() += rows;
    } else {
      if (lonely) --merged.query.back();
      merged.query.push_back(lonely ? rows + 1 : rows);
      merged.prefix.push_back(lengths.prefix[b]);
    }
  }
  for (std::size_t b = 0; b < merged.query.size(); ++b)
    merged.prefix[b] = std::min(merged.prefix[b], context - merged.query[b]);
  return merged;
}

// Divides `rows` rows into decoding requests. A request has one row and up to `max_drafts` drafts, or exactly
// `max_drafts` unless the numbers are `varied`. The cached prefixes have different lengths.
Lengths decode_lengths(std::int64_t rows, std::int64_t max_drafts, std::int64_t context, bool varied) {
  Lengths lengths;
  for (std::int64_t i = 0, left = rows; left > 0; ++i) {
    // Varied numbers of drafts are max_drafts, 0, max_drafts - 1, 1 and so on.
    const std::int64_t step = varied ? i / 2 % (max_drafts + 1) : 0;
    const std::int64_t drafts = varied && i % 2 == 1 ? step : max_drafts - step;
    const std::int64_t query = std::min({left, 1 + drafts, context});
    lengths.query.push_back(static_cast<std::int32_t>(query));
    lengths.prefix.push_back(static_cast<std::int32_t>((i * 37 + 3) % std::min<std::int64_t>(context + 1 - query, 40)));
    left -= query;
  }
  return lengths;
}

// Gives the first request a prefix longer than the widest window, so that the request's page tables leave out the pages
// before the window.
Lengths past_windows(Lengths lengths, const VerifyModel& model) {
  std::int64_t window = 0;
  for (const ir::CacheGroup& group : model.groups) window = std::max(window, group.window);
  if (window == 0) return lengths;
  const std::int64_t most = model.options.context_length - lengths.query[0];
  lengths.prefix[0] = static_cast<std::int32_t>(std::min(most, window + 2 * model.options.page_size + 3));
  return lengths;
}

Lengths without_prefixes(Lengths lengths) {
  lengths.prefix.assign(lengths.prefix.size(), 0);
  return lengths;
}

// Returns for each cache group the number of pages that the batch's requests touch.
std::vector<std::int64_t> pages_needed(const VerifyModel& model, const Lengths& lengths) {
  std::vector<std::int64_t> needed;
  for (const ir::CacheGroup& group : model.groups) {
    needed.push_back(0);
    for (std::size_t b = 0; b < lengths.query.size(); ++b) {
      needed.back() +=
          pages_touched(group, lengths.prefix[b], lengths.prefix[b] + lengths.query[b], model.options.page_size)
              .count();
    }
  }
  return needed;
}

Status check_room(const VerifyModel& model, const std::vector<std::int64_t>& needed, std::int64_t size) {
  for (std::size_t g = 0; g < needed.size(); ++g) {
    const std::int64_t usable = model.options.num_pages[g] - 1;
    if (needed[g] <= usable) continue;
    return resource_exhausted(
        fmt::format("verifying a forward of size {} needs {} pages of cache group {}, which has {}", size, needed[g],
                    model.groups[g].name, usable));
  }
  return ok_status();
}

// Gives each group a range of pages. If the group's pool is large enough, the ids in its range are higher than the ids
// of all groups before it.
std::vector<PageRange> page_ranges(const VerifyModel& model, const std::vector<std::int64_t>& needed) {
  std::vector<PageRange> ranges;
  std::int64_t before = 0;
  for (std::size_t g = 0; g < needed.size(); ++g) {
    const std::int64_t begin = 1 + std::min(before, model.options.num_pages[g] - 1 - needed[g]);
    ranges.push_back({begin, begin + needed[g]});
    before += needed[g];
  }
  return ranges;
}

// Assigns the pages of the range to the requests. The order is ascending in one group, descending in the next group,
// and so on.
void add_pages(const VerifyModel& model, const Lengths& lengths, const PageRange& range, std::size_t g,
               CacheGroupBatch& batch) {
  const ir::CacheGroup& group = model.groups[g];
  const std::int64_t page_size = model.options.page_size;
  std::vector<std::vector<PageId>> tables;
  std::int64_t taken = 0;
  for (std::size_t b = 0; b < lengths.query.size(); ++b) {
    const std::int64_t length = lengths.prefix[b] + lengths.query[b];
    const PageRange touched = pages_touched(group, lengths.prefix[b], length, page_size);
    std::vector<PageId>& table = tables.emplace_back(static_cast<std::size_t>(touched.begin), PageId(0));
    for (std::int64_t left = touched.count(); left > 0; --left) {
      const std::int64_t id = g % 2 == 0 ? range.begin + taken : range.end - 1 - taken;
      table.emplace_back(static_cast<std::int32_t>(id));
      ++taken;
    }
    append_slots(batch, group, lengths.prefix[b], length, page_size, table);
  }
  batch.own(std::move(tables));
}

// Adds a token. Some tokens get an embedding in addition to their id. The forward must then ignore the id.
void add_token(const VerifyModel& model, std::int32_t position, VerifyBatch& made) {
  ForwardBatch& batch = made.batch;
  const std::int64_t token = batch.num_tokens();
  const bool given = token % 64 == 3;
  const auto id = static_cast<std::int32_t>((token * 7919 + 13) % model.poisoned_id.value());
  batch.input_ids.push_back(given ? model.poisoned_id : TokenId(id));
  batch.embedding_rows.push_back(given ? static_cast<std::int32_t>(std::ssize(made.embeddings) / model.row_values)
                                       : -1);
  for (std::int64_t i = 0; given && i < model.row_values; ++i)
    made.embeddings.push_back(static_cast<float>((token + i * 31) % 17 - 8) / 64.0F);
  batch.input_rows.push_back(-1);
  batch.positions.push_back(position);
  // The three-dimensional positions are like those in an image with rows of 7 tokens.
  made.rope_positions[0].push_back(position / 2);
  made.rope_positions[1].push_back(position / 2 + position % 49 / 7);
  made.rope_positions[2].push_back(position / 2 + position % 7);
}

void add_tokens(const VerifyModel& model, const Lengths& lengths, VerifyBatch& made) {
  ForwardBatch& batch = made.batch;
  for (std::size_t b = 0; b < lengths.query.size(); ++b) {
    const std::int32_t length = lengths.prefix[b] + lengths.query[b];
    for (std::int32_t position = lengths.prefix[b]; position < length; ++position) add_token(model, position, made);
    if (model.adapter_slots > 0) {
      // The requests take the slots in turn, beginning with slot 0. After the last slot comes one request without an
      // adapter, and then slot 0 again.
      const auto slot = static_cast<std::int64_t>(b) % (model.adapter_slots + 1);
      batch.adapter_slots.resize(batch.input_ids.size(),
                                 slot == model.adapter_slots ? -1 : static_cast<std::int32_t>(slot));
    }
    batch.query_lens.push_back(lengths.query[b]);
    batch.kv_lens.push_back(length);
    if (model.max_drafts > 0) {
      batch.draft_lens.push_back(lengths.query[b] - 1);
      batch.accepted_drafts.push_back(
          b % 3 == 1 ? 0 : std::min(lengths.prefix[b], static_cast<std::int32_t>(model.max_drafts)));
    }
    if (model.last_rows_wanted) batch.wanted_rows.push_back(static_cast<std::int32_t>(batch.num_tokens()) - 1);
  }
  if (!made.embeddings.empty()) batch.embedding_writes = {{.first_row = 0, .values = made.embeddings}};
  if (model.last_rows_wanted) return;
  batch.wanted_rows.resize(batch.input_ids.size());
  std::iota(batch.wanted_rows.begin(), batch.wanted_rows.end(), 0);
}

}  // namespace

std::vector<std::byte> small_numbers(ir::DType dtype, std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  const std::size_t element = ir::dtype_size(dtype);
  std::uint32_t random = 12345;
  for (std::size_t at = 0; at + element <= made.size(); at += element) {
    random = random * 1664525U + 1013904223U;
    // Kernels read most bytes of an int8 cache as codes, and other bytes in pairs as bfloat16 scales. The bytes made
    // here give scales with magnitudes of 2^-15 to 2^-7.
    const std::uint32_t bits = dtype == ir::DType::kUInt8      ? 0x38U | (random >> 30) | ((random >> 22) & 0x80U)
                               : dtype == ir::DType::kFloat32  ? 0x3e000000U | (random >> 9) | (random & 0x80000000U)
                               : dtype == ir::DType::kBFloat16 ? 0x3e00U | (random >> 25) | ((random >> 16) & 0x8000U)
                               : dtype == ir::DType::kFloat8E4M3
                                   ? 0x30U | (random >> 29) | ((random >> 24) & 0x80U)
                                   : 0x3000U | (random >> 22) | ((random >> 16) & 0x8000U);
    std::memcpy(made.data() + at, &bits, element);
  }
  return made;
}

bool can_have_several_rows_each(std::int64_t size, std::int64_t context) {
  return size >= 2 && (context > 2 || (context == 2 && size % 2 == 0));
}

Result<VerifyBatch> make_verify_batch(const VerifyModel& model, std::int64_t size, bool decode) {
  const RunnerOptions& options = model.options;
  if (model.several_rows_each && !can_have_several_rows_each(size, options.context_length))
    return invalid_argument(
        fmt::format("{} tokens cannot be divided into requests of 2 to {} tokens", size, options.context_length));
  const std::int64_t requests = std::clamp<std::int64_t>(options.shared_pages(), 1, options.max_requests);
  Lengths short_prefixes = decode ? decode_lengths(size, model.max_drafts, options.context_length, /*varied=*/true)
                                  : prefill_lengths(size, options.context_length, requests);
  if (decode && !check_room(model, pages_needed(model, without_prefixes(short_prefixes)), size).ok())
    short_prefixes = decode_lengths(size, model.max_drafts, options.context_length, /*varied=*/false);
  if (model.several_rows_each)
    short_prefixes = several_rows_each(short_prefixes, static_cast<std::int32_t>(options.context_length));
  Lengths lengths = without_prefixes(short_prefixes);
  TRY(check_room(model, pages_needed(model, lengths), size));
  for (Lengths& longer : std::array{past_windows(short_prefixes, model), short_prefixes}) {
    if (!check_room(model, pages_needed(model, longer), size).ok()) continue;
    lengths = std::move(longer);
    break;
  }
  VerifyBatch made{.batch = {}, .pages = page_ranges(model, pages_needed(model, lengths))};
  add_tokens(model, lengths, made);
  made.batch.groups.resize(model.groups.size());
  for (std::size_t g = 0; g < model.groups.size(); ++g)
    add_pages(model, lengths, made.pages[g], g, made.batch.groups[g]);
  return made;
}

}  // namespace tessera
