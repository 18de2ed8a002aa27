// Counts how many drafts speculative decoding made and kept: for a request, and for the engine since it started.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

inline constexpr std::int64_t kMostDrafts = 64;  // maximum number of drafts of a request in a step

// The drafts of one request, or of several.
struct DraftTotals {
  std::int64_t steps = 0;    // forwards with drafts, each counted once per request with drafts
  std::int64_t drafted = 0;  // drafts in these forwards
  std::int64_t kept = 0;     // drafts that were output

  // Adds one forward of a request. Precondition: 1 ≤ more_drafted, 0 ≤ more_kept ≤ more_drafted.
  void add(std::int64_t more_drafted, std::int64_t more_kept) {
    ++steps;
    drafted += more_drafted;
    kept += more_kept;
  }
  void add(const DraftTotals& more) {
    steps += more.steps;
    drafted += more.drafted;
    kept += more.kept;
  }
  // Returns the average number of tokens that a forward with drafts gave. The forward gives its kept drafts, and the
  // one token that a forward without drafts gives too. Returns 0 before the first forward with drafts.
  double mean_length() const { return steps == 0 ? 0 : 1 + static_cast<double>(kept) / static_cast<double>(steps); }
  // Returns the share of the drafts that was kept; 0 without drafts.
  double kept_share() const { return drafted == 0 ? 0 : static_cast<double>(kept) / static_cast<double>(drafted); }
};

struct DraftStats : DraftTotals {
  // [i] counts the drafts at position i of their step. The first draft of a step has position 0.
  using ByPosition = std::array<std::int64_t, kMostDrafts>;

  ByPosition drafted_at{};
  ByPosition kept_at{};

  // Adds one forward of a request. Precondition: 1 ≤ more_drafted ≤ kMostDrafts, 0 ≤ more_kept ≤ more_drafted.
  void add(std::int64_t more_drafted, std::int64_t more_kept) {
    DraftTotals::add(more_drafted, more_kept);
    for (std::int64_t at = 0; at < more_drafted; ++at) ++drafted_at[static_cast<std::size_t>(at)];
    for (std::int64_t at = 0; at < more_kept; ++at) ++kept_at[static_cast<std::size_t>(at)];
  }
  void add(const DraftStats& more) {
    DraftTotals::add(more);
    for (std::size_t at = 0; at < drafted_at.size(); ++at) {
      drafted_at[at] += more.drafted_at[at];
      kept_at[at] += more.kept_at[at];
    }
  }

  // Returns how many positions have had a draft. These are the positions 0, 1, …, because the drafts of a step follow
  // one another.
  std::size_t positions() const {
    std::size_t count = 0;
    while (count < drafted_at.size() && drafted_at[count] > 0) ++count;
    return count;
  }
  // Returns the positions of `list` (drafted_at or kept_at) that have had a draft.
  std::span<const std::int64_t> by_position(const ByPosition& list) const { return std::span(list).first(positions()); }
};

}  // namespace tessera
