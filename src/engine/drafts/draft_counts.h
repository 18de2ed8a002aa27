// Chooses how many tokens each request of a step drafts, so that the step gives the most tokens for its time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

// What one request could draft. Draft k (from 1) is kept with probability acceptanceᵏ.
struct DraftOffer {
  double acceptance = 0;  // probability that a draft behind kept ones is kept
  std::int64_t most = 0;
  bool by_layer = false;
};

// What a step costs, in milliseconds.
struct DraftCosts {
  // Of a forward of `rows` rows of `requests` requests; nothing if it is unknown. Empty: never known.
  std::function<std::optional<double>(std::int64_t rows, std::int64_t requests)> forward_ms = {};
  // Of one more draft by the layer, of all requests at once; 0: unknown. Empty: there is no layer.
  std::function<double()> draft_ms = {};
};

class DraftCounts {
 public:
  // Returns the number of drafts of each offer, [offers]; valid until the next call. `rows` of `requests` requests are
  // computed in any case; at most `room` drafts come on top. Costs grow in steps, as forwards are padded, so all
  // numbers up to `room` are considered, in the order of the drafts' probability.
  std::span<const std::int64_t> choose(std::span<const DraftOffer> offers, std::int64_t rows, std::int64_t requests,
                                       std::int64_t room, const DraftCosts& costs);

 private:
  struct Next {
    double probability;  // of the offer's next draft
    std::size_t offer;
  };
  std::vector<Next> heap_;
  std::vector<std::size_t> order_;  // the offers whose drafts were considered, the most probable draft first
  std::vector<std::int64_t> counts_;
};

}  // namespace tessera
