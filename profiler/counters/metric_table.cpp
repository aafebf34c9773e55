// SPDX-License-Identifier: Apache-2.0
// The table of metrics and sets. Counter names: CUPTI 13.0. Where chips name a counter differently, the
// alternatives follow one another; GB202 splits DRAM bytes by operation, for example.
#include "profiler/counters/metric_sets.hpp"

namespace tilescope {
namespace {

Metric plain(std::string_view name, std::string_view unit, std::string_view counter,
             std::string_view caveat = "") {
  return {name, unit, {{{1, counter}}}, caveat};
}

Metric renamed(std::string_view name, std::string_view unit, std::string_view counter,
               std::string_view elsewhere, std::string_view caveat = "") {
  return {name, unit, {{{1, counter}}, {{1, elsewhere}}}, caveat};
}

constexpr int kSectorBytes = 32;

std::vector<Metric> traffic_metrics() {
  return {
      plain("sm_l2_read_bytes", "byte", "l1tex__m_xbar2l1tex_read_bytes.sum",
            "all that the SMs read from L2, by loads, cp.async and TMA alike; includes distributed shared "
            "memory"),
      {"sm_l2_write_bytes",
       "byte",
       {{{kSectorBytes, "lts__t_sectors_srcunit_tex_op_write.sum"},
         {kSectorBytes, "lts__t_sectors_srcunit_tex_op_red.sum"},
         {kSectorBytes, "lts__t_sectors_srcunit_tex_op_atom.sum"}}},
       "all that the SMs write to L2, reductions and atomics included, in whole sectors: part of a sector "
       "counts as 32 bytes. Of stores the same bytes as l1tex__m_l1tex2xbar_write_bytes.sum, which takes a "
       "pass of its own; of reductions that counter says about 1.95 times as many, and it is not known why"},
      renamed("dram_read_bytes", "byte", "dram__bytes_read.sum", "dram__bytes_op_read.sum",
              "counts other engines and contexts too"),
      renamed("dram_write_bytes", "byte", "dram__bytes_write.sum", "dram__bytes_op_write.sum",
              "lines that are still dirty in L2 at the end are missing, lines that were dirty before are "
              "included; bracketed measurement has neither"),
      plain("l2_read_sectors", "1", "lts__t_sectors_srcunit_tex_op_read.sum",
            "of 32 bytes, asked for by the SMs; without what L2's two partitions ask of each other"),
      plain("l2_write_sectors", "1", "lts__t_sectors_srcunit_tex_op_write.sum", "written by the SMs"),
      plain("l2_atomic_sectors", "1", "lts__t_sectors_srcunit_tex_op_atom.sum",
            "atomics that return a value"),
      plain("l2_reduction_sectors", "1", "lts__t_sectors_srcunit_tex_op_red.sum",
            "atomics that return nothing"),
      plain("l2_fill_sectors", "1", "lts__d_sectors_fill_device.sum",
            "fetched from DRAM: what is left of l2_read_sectors was found in L2"),
      plain("counter_run_duration", "ns", "gpu__time_duration.sum",
            "of the run with counters, not the time of the kernel alone"),
      plain("warp_instructions", "1", "smsp__inst_executed.sum"),
      plain("sm_clock", "Hz", "sm__cycles_elapsed.avg.per_second"),
      plain("dram_clock", "Hz", "dram__cycles_elapsed.avg.per_second"),
  };
}

/// What the two SM<->L2 totals are made of, beside the spills of warp_metrics(), and the DRAM reads that no
/// load asks for.
std::vector<Metric> cause_metrics() {
  return {
      plain(
          "store_bytes", "byte", "l1tex__m_l1tex2xbar_write_bytes_mem_lg_op_st.sum",
          "part of sm_l2_write_bytes: plain stores, those of spills included, in whole sectors of 32 bytes"),
      plain("global_store_bytes", "byte", "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum",
            "what plain stores to global memory ask for, in whole sectors: without spills"),
      {"merged_store_bytes",
       "byte",
       {{{1, "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum"},
         {1, "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum"},
         {1, "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum"},
         {-kSectorBytes, "lts__t_sectors_srcunit_tex_op_write.sum"}},
        {{1, "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum"},
         {1, "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum"},
         {-kSectorBytes, "lts__t_sectors_srcunit_tex_op_write.sum"}}},
       "sectors that met in L1 and left it as one: what plain and TMA stores ask for less what L2 was sent. "
       "How many meet is a matter of timing, another number in each run; of the same run as "
       "sm_l2_write_bytes. Taken off an account of these bytes it makes the account of plain stores an "
       "identity, as the write counter stands on both sides: l1tex__m_l1tex2xbar_write_bytes.sum can check "
       "it"},
      plain("stored_data_bytes", "byte", "smsp__sass_data_bytes_mem_global_op_st.sum",
            "what the plain stores ask for, without spills and whatever the sectors; counted by instrumented "
            "code: kernels run slower in that pass"),
      plain("tma_store_bytes", "byte", "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",
            "part of sm_l2_write_bytes"),
      {"reduction_bytes",
       "byte",
       {{{1, "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_red.sum"},
         {1, "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red.sum"}},
        {{1, "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_red.sum"}}},
       "part of sm_l2_write_bytes: atomics that return nothing, by LSU and TMA"},
      plain("atomic_write_bytes", "byte", "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_atom.sum",
            "part of sm_l2_write_bytes: atomics that return a value"),
      plain("atomic_read_bytes", "byte", "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_atom.sum",
            "part of sm_l2_read_bytes: values that atomics return"),
      plain("multicast_read_bytes", "byte",
            "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld_dest_multicast.sum",
            "part of sm_l2_read_bytes: TMA loads for several CTAs of a cluster"),
      plain("local_reload_bytes", "byte", "l1tex__t_bytes_pipe_lsu_mem_local_op_ld_lookup_miss.sum",
            "spilled values that L1 no longer held: part of sm_l2_read_bytes"),
      plain("l1_load_hit_bytes", "byte", "l1tex__t_bytes_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
            "loads of global memory that L1 served, cp.async by way of it included, in sectors: not part of "
            "sm_l2_read_bytes"),
      // Not in the set `traffic`: with it that set takes a second pass on GH100.
      {"instruction_fetch_bytes",
       "byte",
       {{{kSectorBytes, "lts__t_sectors_srcunit_gcc_lookup_miss.sum"}}},
       "code and constants that L2 had to fetch from DRAM: part of dram_read_bytes, not of "
       "sm_l2_read_bytes"},
  };
}

/// Warps resident per issue cycle that wait for the named reason.
Metric stall(std::string_view name, std::string_view counter) { return plain(name, "warp", counter); }

std::vector<Metric> warp_metrics() {
  return {
      plain("occupancy", "%", "sm__warps_active.avg.pct_of_peak_sustained_active"),
      plain("eligible_warps", "warp", "smsp__warps_eligible.avg.per_cycle_active", "per scheduler and cycle"),
      plain("issue_active", "%", "smsp__issue_active.avg.pct_of_peak_sustained_active"),
      plain("threads_per_instruction", "1", "smsp__average_thread_inst_executed_per_inst_executed.ratio",
            "32 without divergence"),
      plain("uniform_branches", "%", "smsp__sass_average_branch_targets_threads_uniform.pct"),
      plain("shared_load_bank_conflicts", "1", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"),
      plain("shared_store_bank_conflicts", "1", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"),
      plain("local_load_bytes", "byte", "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",
            "register spills and indexed local arrays"),
      plain("local_store_bytes", "byte", "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
            "register spills and indexed local arrays"),
      stall("stall_barrier", "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"),
      stall("stall_branch_resolving",
            "smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio"),
      stall("stall_dispatch", "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio"),
      stall("stall_drain", "smsp__average_warps_issue_stalled_drain_per_issue_active.ratio"),
      stall("stall_gmma", "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"),
      stall("stall_constant_miss", "smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio"),
      stall("stall_lg_throttle", "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio"),
      stall("stall_long_scoreboard",
            "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"),
      stall("stall_math_throttle",
            "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio"),
      stall("stall_membar", "smsp__average_warps_issue_stalled_membar_per_issue_active.ratio"),
      stall("stall_mio_throttle", "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio"),
      stall("stall_misc", "smsp__average_warps_issue_stalled_misc_per_issue_active.ratio"),
      stall("stall_no_instruction",
            "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio"),
      stall("stall_not_selected", "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"),
      stall("stall_selected", "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio"),
      stall("stall_short_scoreboard",
            "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio"),
      stall("stall_sleeping", "smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio"),
      stall("stall_tex_throttle", "smsp__average_warps_issue_stalled_tex_throttle_per_issue_active.ratio"),
      stall("stall_wait", "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"),
  };
}

std::vector<Metric> tensor_metrics() {
  return {
      plain("tensor_pipe_active", "%", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"),
      plain("tensor_instructions", "1", "sm__inst_executed_pipe_tensor.sum",
            "on GH100 not zero for some kernels without tensor instructions; see the operations"),
      plain("tensor_bf16_ops", "op", "sm__ops_path_tensor_src_bf16_dst_fp32.sum", "a multiply-add is two"),
      {"tensor_fp16_ops",
       "op",
       {{{1, "sm__ops_path_tensor_src_fp16.sum"}},
        {{1, "sm__ops_path_tensor_src_fp16_dst_fp16.sum"}, {1, "sm__ops_path_tensor_src_fp16_dst_fp32.sum"}}},
       "a multiply-add is two"},
      plain("tensor_tf32_ops", "op", "sm__ops_path_tensor_src_tf32_dst_fp32.sum", "a multiply-add is two"),
      {"tensor_fp8_ops",
       "op",
       {{{1, "sm__ops_path_tensor_src_fp8.sum"}},
        {{1, "sm__ops_path_tensor_src_fp8_dst_fp16.sum"}, {1, "sm__ops_path_tensor_src_fp8_dst_fp32.sum"}},
        {{1, "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp16.sum"},
         {1, "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum"}}},
       "a multiply-add is two; GB100 counts fp4 and fp6 with it"},
      plain("tensor_int8_ops", "op", "sm__ops_path_tensor_src_int8.sum", "a multiply-add is two"),
      plain("tensor_fp64_ops", "op", "sm__ops_path_tensor_src_fp64.sum", "a multiply-add is two"),
  };
}

/// Floating-point operations of the CUDA cores: a multiply-add is two.
Metric cuda_core_ops(std::string_view name, std::string_view add, std::string_view multiply,
                     std::string_view multiply_add, std::string_view caveat = "") {
  return {name, "op", {{{1, add}, {1, multiply}, {2, multiply_add}}}, caveat};
}

std::vector<Metric> load_metrics() {
  return {
      plain(
          "global_load_bytes", "byte", "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum",
          "what loads of global memory ask for, in whole sectors, whoever serves them; GH100 counts cp.async "
          "past L1 with it"),
      plain("loaded_data_bytes", "byte", "smsp__sass_data_bytes_mem_global_op_ld.sum",
            "what loads ask for without cp.async, a word for each lane, whatever the sectors; counted by "
            "instrumented code: kernels run slower in that pass"),
  };
}

std::vector<Metric> roofline_metrics() {
  return {
      cuda_core_ops("fp32_ops", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
                    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
                    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
                    "counted by instrumented code: kernels run slower in that pass"),
      plain("l2_hit_sectors", "1", "lts__t_sectors_lookup_hit.sum",
            "of all that are looked for, by L2's partitions of each other too; takes a pass of its own"),
      plain("l2_hit_rate", "%", "lts__t_sector_hit_rate.pct",
            "hits and look-ups come from different passes: small kernels can leave 0 to 100"),
      plain("shared_wavefronts", "1", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
            "cycles in which shared memory moves up to 128 bytes in an SM"),
      plain("dram_peak_bytes_per_cycle", "byte", "dram__bytes.sum.peak_sustained",
            "times dram_clock: the DRAM's theoretical bandwidth at the clock of the run"),
  };
}

/// Bytes that instructions ask of shared memory; what TMA copies there is among none of them.
std::vector<Metric> shared_metrics() {
  constexpr std::string_view kCaveat = "counted by instrumented code; TMA's copies are not among them";
  return {
      plain("shared_bytes", "byte", "sm__sass_data_bytes_mem_shared.sum", kCaveat),
      {"shared_load_bytes",
       "byte",
       {{{1, "sm__sass_data_bytes_mem_shared_op_ld.sum"}, {1, "sm__sass_data_bytes_mem_shared_op_ldsm.sum"}}},
       kCaveat},
      {"shared_store_bytes",
       "byte",
       {{{1, "sm__sass_data_bytes_mem_shared_op_st.sum"}, {1, "sm__sass_data_bytes_mem_shared_op_stsm.sum"}},
        {{1, "sm__sass_data_bytes_mem_shared_op_st.sum"}}},
       kCaveat},
      plain("shared_copy_bytes", "byte", "sm__sass_data_bytes_mem_shared_op_ldgsts.sum", "by cp.async"),
      plain("shared_gmma_bytes", "byte", "sm__sass_data_bytes_mem_shared_op_gmma.sum",
            "read by wgmma from shared memory"),
  };
}

std::vector<std::string_view> names_of(const std::vector<Metric>& metrics) {
  std::vector<std::string_view> names;
  for (const Metric& metric : metrics) names.push_back(metric.name);
  return names;
}

}  // namespace

// The tables are never destroyed: in somebody else's process they are read until the last exit handler has
// run.

const std::vector<Metric>& all_metrics() {
  static const auto& all = *new std::vector<Metric>([] {
    std::vector<Metric> metrics;
    for (const auto& group : {traffic_metrics(), cause_metrics(), load_metrics(), warp_metrics(),
                              tensor_metrics(), roofline_metrics(), shared_metrics()}) {
      metrics.insert(metrics.end(), group.begin(), group.end());
    }
    return metrics;
  }());
  return all;
}

const std::vector<MetricSet>& metric_sets() {
  static const auto& all = *new std::vector<MetricSet>{
      {"traffic", "bytes at SM<->L2 and DRAM, L2 sectors and those it fetched, instructions, clocks",
       names_of(traffic_metrics())},
      {"causes",
       "what SM<->L2 bytes are made of: stores, partial sectors, reductions, atomics, spills; code fetched",
       [] {
         auto names = names_of(cause_metrics());
         names.insert(names.begin(), {"sm_l2_read_bytes", "sm_l2_write_bytes", "local_store_bytes"});
         return names;
       }()},
      {"loads", "what plain loads ask for, by sectors and by words", names_of(load_metrics())},
      {"warp", "occupancy, issue, every stall reason, divergence, bank conflicts, spills",
       names_of(warp_metrics())},
      {"tensor", "use of the tensor pipe and its operations by type", names_of(tensor_metrics())},
      {"roofline",
       "operations, bytes at each boundary, clocks and peaks",
       {"sm_l2_read_bytes", "sm_l2_write_bytes", "dram_read_bytes", "dram_write_bytes", "l2_hit_rate",
        "shared_wavefronts", "fp32_ops", "tensor_bf16_ops", "tensor_fp16_ops", "tensor_tf32_ops",
        "tensor_fp8_ops", "dram_peak_bytes_per_cycle", "sm_clock", "dram_clock", "counter_run_duration",
        "warp_instructions"}},
      {"shared",
       "bytes at shared memory by kind of instruction, wavefronts, bank conflicts",
       {"shared_bytes", "shared_load_bytes", "shared_store_bytes", "shared_copy_bytes", "shared_gmma_bytes",
        "shared_wavefronts", "shared_load_bank_conflicts", "shared_store_bank_conflicts"}},
      {"all", "all of the above; many passes", names_of(all_metrics())},
  };
  return all;
}

}  // namespace tilescope
