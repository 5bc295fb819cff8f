// How an algorithm is chosen from what cuDNN answers.
#pragma once

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "kernels/check.h"

namespace lockstep::kernels {

// "Not supported" in any version: 9 in cuDNN 8; 3000 to 3999, with a reason each, in cuDNN 9, which names
// 3000 to 3014.
constexpr bool is_not_supported(cudnnStatus_t status) {
  const auto code = static_cast<int>(status);
  return code == 9 || (code >= 3000 && code < 4000);
}

// Algorithms that want more workspace are passed over: the next one is slower and runs.
inline constexpr size_t kMostWorkspaceBytes = size_t{512} << 20;

// An algorithm of one pass, and its workspace; `supported` is false where cuDNN has none.
template <typename Algorithm>
struct LibraryChoice {
  bool supported = false;
  Algorithm algorithm{};
  size_t workspace_bytes = 0;
};

inline constexpr int kMostAnswers = 8;

// The first of cuDNN's answers, best first, that is deterministic, not among those that have declined to run,
// and whose workspace is known and small enough. query(count, answers), called `name`, and
// workspace(algorithm, bytes) are cuDNN's functions for a pass. Errors other than "not supported" are thrown.
template <typename Answer, typename Query, typename Workspace>
auto choose_algorithm(const char* name, Query query, Workspace workspace,
                      const std::vector<decltype(Answer::algo)>& declined = {}) {
  LibraryChoice<decltype(Answer::algo)> choice;
  std::array<Answer, kMostAnswers> answers;
  int count = 0;
  const cudnnStatus_t status = query(&count, answers.data());
  if (is_not_supported(status)) return choice;
  if (status != CUDNN_STATUS_SUCCESS) detail::throw_cudnn(status, name, __FILE__, __LINE__);
  for (int i = 0; i < count; ++i) {
    const Answer& answer = answers[static_cast<size_t>(i)];
    if (answer.status != CUDNN_STATUS_SUCCESS || answer.determinism != CUDNN_DETERMINISTIC) continue;
    if (std::find(declined.begin(), declined.end(), answer.algo) != declined.end()) continue;
    size_t bytes = 0;
    const cudnnStatus_t sized = workspace(answer.algo, &bytes);
    if (is_not_supported(sized) || bytes > kMostWorkspaceBytes) continue;
    if (sized != CUDNN_STATUS_SUCCESS) detail::throw_cudnn(sized, name, __FILE__, __LINE__);
    choice = {true, answer.algo, bytes};
    break;
  }
  return choice;
}

}  // namespace lockstep::kernels
