"""From marks to a Timeline: what a probe left behind, read in the parent. Below the verbs."""
