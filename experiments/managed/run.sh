#!/usr/bin/env bash
# What managed memory costs on this machine's GPU: a line of JSON for each measurement. Needs CUDA 13's nvcc and a GPU.
set -euo pipefail
cd "$(dirname "$0")"
program=$(mktemp)
trap 'rm -f "$program"' EXIT
nvcc -O2 -std=c++17 -arch=native -o "$program" managed.cu
"$program"
