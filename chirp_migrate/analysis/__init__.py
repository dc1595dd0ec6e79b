"""Infer the semantics of code from its source, without running it: values, datasets, loaders, devices and loops.

The module ``known_names`` and the subpackages are layers in this order: ``known_names``, ``objects``, ``dataflow``,
``datasets``, ``devices``, ``loaders``, ``loops``, ``gain``. Each layer may import only earlier layers. The package may
import ``syntax`` and the packages that ``syntax`` may import. The package only reads code, and never changes the text
of a module.
"""
