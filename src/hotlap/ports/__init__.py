"""The extension surface: what a knob, a rule, an integration and a renderer must offer. One screen each."""
