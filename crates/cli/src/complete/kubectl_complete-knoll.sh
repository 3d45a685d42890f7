#!/bin/sh
# Completes `kubectl knoll`. kubectl calls `kubectl_complete-knoll` on the PATH with the words after `kubectl knoll`, and
# reads a candidate a line, with a tab before its description, and a last line with directives for the shell.
found=$(KNOLL_COMPLETE=fish kubectl-knoll -- kubectl-knoll "$@" 2>/dev/null)
printf '%s\n' "$found"
# No names of files (4), and no space (2) after a flag whose value follows.
case "$found" in
*=) echo :6 ;;
*) echo :4 ;;
esac
