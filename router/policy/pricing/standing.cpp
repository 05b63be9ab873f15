#include "standing.hpp"

#include <bit>
#include <cmath>

#include "arithmetic.hpp"

namespace dovecote::pricing {
namespace {

//: Sums of counts and their products, before they are held against the bounds.
using Wide = __int128;

//: As their namesakes in `router.placement.views` and `router.fleet.ages`.
constexpr double kReportTtlS = 30.0, kRatioSteps = 32.0, kLongestAgeS = 0x1p40, kPriorRequests = 16.0;
constexpr Count kForeignOutputTokens = 256, kForeignJointTokens = 128;
constexpr int kBins = 16;

//: What is open on a rank, by this router and by those that told theirs.
struct Load {
  Wide waiting_requests, decoding_requests, remaining_output_tokens, context_tokens, open_tokens;
  Wide joint_output_tokens, joint_context_tokens;
};

//: What others have there: `find_foreign_load`.
struct ForeignRequests {
  Wide waiting = 0, running = 0;
};

//: Memory of a rank: `RecentWork.share`.
struct Recent {
  double busy_ratio = 0.0, fill_tokens_per_s = 0.0;
  Count filled_tokens;
};

Count read_size(nb::handle sized) { return static_cast<Count>(nb::len(sized)); }

void add(Load& load, nb::handle from) {
  static const Name remaining("remaining_output_tokens"), context("context_tokens"), open("open_tokens");
  static const Name joint("joint_output_tokens"), joint_context("joint_context_tokens");
  load.remaining_output_tokens += remaining.count(from);
  load.context_tokens += context.count(from);
  load.open_tokens += open.count(from);
  load.joint_output_tokens += joint.count(from);
  load.joint_context_tokens += joint_context.count(from);
}

//: What is known of one rank's load: its account or null, and what others told of it.
class Open {
 public:
  Open(const Sources& sources, nb::handle target) : sources_(sources), target_(target) {
    account_ = find(sources.accounts, target);
  }

  Load read_load() const {
    static const Name decoding("decoding"), waiting_requests("waiting_requests"), decoding_requests("decoding_requests");
    Load load{};
    if (account_) {
      add(load, account_);
      load.waiting_requests = read_size(prefilling());
      load.decoding_requests = read_size(decoding.of(account_));
    }
    each_word([&](nb::handle partial, double) {
      add(load, partial);
      load.waiting_requests += waiting_requests.count(partial);
      load.decoding_requests += decoding_requests.count(partial);
    });
    return load;
  }

  Wait read_wait() const {
    static const Name settled("settled_at_s"), remaining("remaining_s"), floor("floor_s"), waiting("waiting_s");
    Wait wait;
    if (account_ && read_size(prefilling())) {
      wait.settled_at_s = settled.real(account_);
      wait.remaining_s = remaining.real(account_);
      wait.floor_s = floor.real(account_);
    }
    each_word([&](nb::handle partial, double told_at_s) { wait.told.push_back({waiting.real(partial), told_at_s}); });
    return wait;
  }

 private:
  nb::object prefilling() const {
    static const Name name("prefilling");
    return name.of(account_);
  }

  template <typename Take>
  void each_word(Take take) const {
    for (const Sources::Word& word : sources_.words)
      if (const nb::handle partial = find(word.ranks, target_)) take(partial, word.told_at_s);
  }

  const Sources& sources_;
  nb::handle target_, account_;
};

// Of requests that others placed; writes the wait that follows from them too.
ForeignRequests read_foreign(nb::handle report, const Givens& givens, double now_s, Wait& wait) {
  static const Name has_foreign("has_foreign"), running_requests("running_requests"), own("own");
  static const Name waiting_requests("waiting_requests"), waiting_tokens("waiting_tokens");
  static const Name open_requests("open_requests"), reported_at("reported_at_s"), s_per_token("s_per_token");
  if (report.is_none() || !nb::cast<bool>(has_foreign.of(report))) return {};
  const nb::object mine = own.of(report), told_tokens = waiting_tokens.of(report);
  const Wide waiting = waiting_requests.count(report);
  const Wide requests = most<Wide>(0, running_requests.count(report) + waiting - open_requests.count(mine));
  const Wide tokens = told_tokens.is_none()
                          ? least(waiting, requests) * givens.foreign_request_tokens
                          : most<Wide>(0, Wide{read_count(told_tokens)} - waiting_tokens.count(mine));
  wait.reported_at_s = reported_at.real(report);
  wait.foreign_s = static_cast<double>(tokens) * s_per_token.real(report);
  wait.counts_for_s = kReportTtlS;
  if (most(0.0, now_s - wait.reported_at_s) > kReportTtlS || (requests == 0 && tokens == 0)) return {};
  return {least(waiting, requests), requests - least(waiting, requests)};
}

Recent read_recent(nb::handle recent, double now_s) {
  static const Name work("work_s"), requests("requests"), tokens("tokens"), at("at_s"), memory("memory_s");
  static const Name filled("filled_tokens");
  Recent read;
  read.filled_tokens = filled.count(recent);
  if (requests.real(recent) == 0.0) return read;
  const double memory_s = memory.real(recent);
  const double kept_ratio = std::exp(-most(0.0, now_s - at.real(recent)) / memory_s);
  read.busy_ratio = least(1.0, work.real(recent) * kept_ratio / memory_s);
  read.fill_tokens_per_s = tokens.real(recent) * kept_ratio / memory_s;
  return read;
}

double step(double ratio) { return std::nearbyint(ratio * kRatioSteps) / kRatioSteps; }

// `ReuseAges.find_reuse_ratio`.
double read_reuse_ratio(nb::handle ages, double age_s, const Givens& givens) {
  static const Name reused("reused"), stored("stored");
  const int place = age_s >= 1.0 ? least(kBins - 1, 1 + static_cast<int>(std::log2(age_s))) : 0;
  ExactSum sooner, later;
  int bin = 0;
  for (const nb::handle count : reused.of(ages)) (bin++ < place ? sooner : later).add(read_real(count));
  const double left = most(stored.real(ages) - sooner.round(), later.round());
  const double believed = givens.reuse_probability * std::exp(-age_s / givens.reuse_decay_s);
  return (kPriorRequests * believed + later.round()) / (kPriorRequests + left);
}

// A count with its five highest bits: `coarse`.
Count coarse(Count count) {
  const int shift = std::bit_width(static_cast<std::uint64_t>(count)) - 5;
  return shift <= 0 ? count : count >> shift << shift;
}

//: Whether counts are within their bounds.
class Fit {
 public:
  Count operator()(Wide count, Count bound) {
    fits_ = fits_ && -Wide{bound} <= count && count <= Wide{bound};
    return fits_ ? static_cast<Count>(count) : 0;
  }
  // One of which the highest bits are taken.
  Count coarse(Wide count, Count bound) {
    fits_ = fits_ && count >= 0;
    return pricing::coarse((*this)(count, bound));
  }
  explicit operator bool() const { return fits_; }

 private:
  bool fits_ = true;
};

void fit_load(const Load& own, const ForeignRequests& others, Count request_tokens, Fit& fit, Rank& rank) {
  const Wide open = own.waiting_requests + own.decoding_requests, foreign = others.waiting + others.running;
  rank.open_requests = fit(open + foreign, kMostRequests);
  rank.served_requests = fit(open + others.running, kMostRequests);
  rank.decoding_requests = fit(own.decoding_requests + others.running, kMostRequests);
  rank.remaining_output_tokens = fit(own.remaining_output_tokens + others.running * kForeignOutputTokens, kMostTokens);
  rank.context_tokens = fit(own.context_tokens + others.running * request_tokens, kMostTokens);
  const Wide joint = foreign * kForeignJointTokens;
  rank.joint_output_tokens = fit(own.joint_output_tokens + joint, kMostJointTokens);
  rank.joint_context_tokens = fit(own.joint_context_tokens + joint * request_tokens, kMostPairs);
  rank.open_tokens = fit(own.open_tokens + foreign * request_tokens, kMostTokens);
}

// Its cache: how large, how full, and how old what is pushed out.
void fit_cache(nb::handle rank, nb::handle report, const Givens& givens, const Recent& recent, Fit& fit, Rank& to) {
  static const Name capacity_tokens("capacity_tokens"), used_tokens("used_tokens"), facts("facts"), ages("ages");
  nb::object capacity = report.is_none() ? nb::none() : capacity_tokens.of(report);
  if (capacity.is_none() || read_count(capacity) == 0) capacity = capacity_tokens.of(facts.of(rank));
  to.has_capacity = !capacity.is_none();
  to.capacity_tokens = to.has_capacity ? fit(read_count(capacity), kMostTokens) : 0;
  const nb::object used = report.is_none() ? nb::none() : used_tokens.of(report);
  const Count resident = most(used.is_none() ? 0 : read_count(used), recent.filled_tokens);
  to.resident_tokens = fit.coarse(to.has_capacity ? least(resident, to.capacity_tokens) : resident, kMostTokens);
  to.cache_age_s = std::nan("");
  to.eviction_reuse_ratio = 0.0;
  if (!to.capacity_tokens || !fit || !(recent.fill_tokens_per_s > 0.0)) return;
  const double age_s = least(kLongestAgeS, static_cast<double>(to.capacity_tokens) / recent.fill_tokens_per_s);
  to.cache_age_s = std::exp2(std::nearbyint(std::log2(age_s)));
  to.eviction_reuse_ratio = step(read_reuse_ratio(ages.of(rank), age_s, givens));
}

}  // namespace

Givens::Givens(nb::handle coefficients) {
  static const Name tokens("foreign_request_tokens"), probability("reuse_probability"), decay("reuse_decay_s");
  foreign_request_tokens = tokens.count(coefficients);
  reuse_probability = probability.real(coefficients);
  reuse_decay_s = decay.real(coefficients);
}

Sources::Sources(nb::handle ledger, nb::handle live, nb::handle paces, double at_s) : now_s(at_s) {
  static const Name accounts_name("accounts"), words_name("words"), ranks("ranks"), told_at("told_at_s");
  static const Name sums_name("sums"), ratios_name("ratios"), usual("usual");
  accounts = accounts_name.dict(ledger);
  for (const auto [origin, word] : words_name.dict(ledger)) words.push_back({ranks.dict(word), told_at.real(word)});
  live_sums = sums_name.dict(live);
  ratios = ratios_name.dict(paces);
  usual_ratios = usual.of(paces);
}

bool read_standing(const Sources& sources, const Givens& givens, nb::handle standing, Rank& rank) {
  static const Name target_name("target"), rank_name("rank"), touched("touched_s"), report_name("report");
  static const Name recent_name("recent"), worker("worker"), tokens("tokens"), sessions("sessions"), paused("paused");
  static const Name paused_tokens("paused_tokens"), prefill("prefill"), decode("decode"), context("context");
  const nb::object target = target_name.of(standing), from = rank_name.of(standing), report = report_name.of(from);
  const Recent recent = read_recent(recent_name.of(from), touched.real(standing));
  const Open open(sources, target);
  Fit fit;
  rank.wait = open.read_wait();
  const ForeignRequests others = read_foreign(report, givens, sources.now_s, rank.wait);
  fit_load(open.read_load(), others, givens.foreign_request_tokens, fit, rank);
  fit_cache(from, report, givens, recent, fit, rank);
  rank.busy_ratio = step(recent.busy_ratio);
  const nb::handle live = find(sources.live_sums, target);
  rank.live_tokens = live ? fit.coarse(tokens.count(live), kMostTokens) : 0;
  rank.live_sessions = live ? fit(sessions.count(live), kMostRequests) : 0;
  rank.paused_sessions = live ? fit(paused.count(live), kMostRequests) : 0;
  rank.paused_tokens = live ? fit.coarse(paused_tokens.count(live), kMostTokens) : 0;
  const nb::handle own_ratios = find(sources.ratios, worker.of(target));
  const nb::handle ratios = own_ratios ? own_ratios : nb::handle(sources.usual_ratios);
  rank.prefill_ratio = prefill.real(ratios);
  rank.decode_ratio = decode.real(ratios);
  rank.context_ratio = context.real(ratios);
  return bool(fit);
}

}  // namespace dovecote::pricing
