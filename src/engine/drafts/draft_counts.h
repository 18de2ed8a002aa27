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
  // Returns the time of a forward of `rows` rows of `requests` requests; nothing if it is unknown. Empty: never known.
  std::function<std::optional<double>(std::int64_t rows, std::int64_t requests)> forward_ms = {};
  // Returns the time of one more draft by the layer, for all requests at once; 0: unknown. Empty: there is no layer.
  std::function<double()> draft_ms = {};
};

class DraftCounts {
 public:
  // The step without drafts.
  struct Step {
    std::int64_t requests = 0;    // a row each is computed in any case
    std::int64_t room = 0;        // at most so many drafts come on top
    bool computes_again = false;  // a later step computes kept drafts again, as the model's states leave them out
  };

  // Returns the number of drafts of each offer, [offers]; valid until the next call. Costs grow in steps, as forwards
  // are padded, so all numbers up to the room are considered, in the order of the drafts' probability. Kept drafts that
  // are computed again count as rows of this step.
  std::span<const std::int64_t> choose(std::span<const DraftOffer> offers, const Step& step, const DraftCosts& costs);

 private:
  struct Next {
    double probability;  // probability that the offer's next draft is kept
    std::size_t offer;
  };
  std::vector<Next> heap_;
  std::vector<std::size_t> order_;  // the offers whose drafts were considered, the most probable draft first
  std::vector<std::int64_t> counts_;
};

}  // namespace tessera
