"""The operator: reconcilers, kopf handlers, serving engines, settings and the command line.

May import every package except `partita_devtools`; never imports Ray or torch.
"""
